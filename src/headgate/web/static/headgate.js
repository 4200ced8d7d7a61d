// A little behaviour for pages that work without it: theme, sorting, filters as one types, live figures.
"use strict";

const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
const later = (wait, act) => { let timer; return (...given) => { clearTimeout(timer); timer = setTimeout(() => act(...given), wait); }; };

// ---- theme ----
for (const button of $$("[data-theme-toggle]")) {
  button.addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("headgate-theme", document.documentElement.dataset.theme);
  });
}

// ---- where one is, in a row of links that scrolls ----
$(".side nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

// ---- tables ----
const cellKey = (row, at) => {
  const cell = row.cells[at];
  const text = cell ? cell.dataset.key ?? cell.textContent.trim() : "";
  const number = Number(text.replaceAll(",", ""));
  return text !== "" && !Number.isNaN(number) ? number : text.toLowerCase();
};
const compare = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;

function sortBy(table, at, descending) {
  const rows = [...table.tBodies[0].rows].map((row) => [cellKey(row, at), row]);
  rows.sort(([a], [b]) => descending ? compare(b, a) : compare(a, b));
  table.tBodies[0].append(...rows.map(([, row]) => row));
  $$("th", table).forEach((th, i) => i === at ? th.setAttribute("aria-sort", descending ? "descending" : "ascending") : th.removeAttribute("aria-sort"));
}

function enableSorting(root) {
  $$("table[data-sortable]", root).forEach((table) => {
    const number = $$("table[data-sortable]").indexOf(table);
    $$("th button[data-sort]", table).forEach((button) => {
      const th = button.closest("th"), at = th.cellIndex;
      button.addEventListener("click", () => {
        const descending = th.getAttribute("aria-sort") === "ascending" || (!th.hasAttribute("aria-sort") && th.classList.contains("number"));
        const flipped = th.getAttribute("aria-sort") === "descending" ? false : descending;
        sortBy(table, at, flipped);
        setQuery({ sort: `${number}.${at}${flipped ? "-" : ""}` });
      });
    });
    carrySort(root);
    const wanted = /^(\d+)\.(\d+)(-?)$/.exec(new URLSearchParams(location.search).get("sort") ?? "");
    if (wanted && Number(wanted[1]) === number) sortBy(table, Number(wanted[2]), wanted[3] === "-");
  });
}

function setQuery(changes) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) value ? url.searchParams.set(name, value) : url.searchParams.delete(name);
  history.replaceState(null, "", url);
  carrySort(document);
}

// The next page, and the answer to a form, are sorted alike.
function carrySort(root) {
  const sort = new URLSearchParams(location.search).get("sort");
  if (!sort) return;
  for (const link of $$(".pages a", root)) { const url = new URL(link.href); url.searchParams.set("sort", sort); link.href = url; }
  for (const form of $$("form[method=get]", root)) {
    const field = $("[name=sort]", form) ?? form.appendChild(Object.assign(document.createElement("input"), { type: "hidden", name: "sort" }));
    field.value = sort;
  }
}

// ---- fragments of a page, drawn by the server ----
async function load(target, path, quietly = false) {
  if (!quietly) { target.classList.add("busy"); target.setAttribute("aria-busy", "true"); }
  target.loading?.abort();
  const loading = target.loading = new AbortController();
  try {
    const answer = await fetch(path, { signal: loading.signal, headers: { "X-Requested-With": "fetch" } });
    if (answer.redirected) return void location.reload();
    if (answer.ok) { target.innerHTML = await answer.text(); enable(target); }
  } catch (problem) {
    if (problem.name !== "AbortError") throw problem;
    return;
  }
  target.classList.remove("busy"); target.removeAttribute("aria-busy");
}

// ---- filters ----
const fields = new Map();
const fieldsOf = (of) => {
  if (!of) return Promise.resolve({});
  if (!fields.has(of)) fields.set(of, fetch(`/filter/fields?${new URLSearchParams({ of })}`).then((answer) => answer.ok ? answer.json() : {}));
  return fields.get(of);
};

class FilterBox {
  constructor(box) {
    this.box = box; this.input = $("textarea", box); this.caret = $("[data-caret]", box); this.list = $(".choices", box); this.chosen = -1;
    this.input.addEventListener("input", () => { this.check(); this.offer(); });
    this.input.addEventListener("keydown", (event) => this.press(event));
    this.input.addEventListener("blur", () => setTimeout(() => this.close(), 150));
    this.check = later(120, () => this.checkNow());
    this.input.setAttribute("role", "combobox"); this.input.setAttribute("aria-expanded", "false");
  }
  get of() { return $("[name=of]", this.box.closest("form"))?.value ?? this.box.dataset.of; }
  get text() { return this.input.value; }
  async checkNow() {
    const text = this.text;
    const found = text.trim() ? await (await fetch(`/filter/check?${new URLSearchParams({ filter: text })}`)).json() : { ok: true };
    if (text !== this.text) return;
    this.box.dataset.state = !text.trim() ? "" : found.ok ? "good" : "bad";
    this.caret.textContent = found.ok ? "" : found.text;
    if (found.ok) this.box.dispatchEvent(new CustomEvent("filter", { detail: text, bubbles: true }));
  }
  async offer() {
    const before = this.text.slice(0, this.input.selectionStart);
    const known = await fieldsOf(this.of);
    const value = /([\w.]+|"[^"]+")\s*(?:=|<>|<=?|>=?|\bIN\s*\(|\bLIKE)\s*('?)([^'()\s]*)$/i.exec(before);
    const name = /(?:^|[\s(])([\w.]+)$/.exec(before);
    if (value && known[value[1].replaceAll('"', "")]) {
      const quoted = known[value[1].replaceAll('"', "")].map((each) => typeof each === "string" ? `'${each.replaceAll("'", "''")}'` : String(each));
      return this.show(quoted.filter((each) => each.replace("'", "").startsWith(value[3])), value[2].length + value[3].length, "value");
    }
    if (name) return this.show(Object.keys(known).filter((each) => each.startsWith(name[1]) && each !== name[1]), name[1].length, "name");
    this.close();
  }
  show(words, typed, kind) {
    this.words = words.slice(0, 12); this.typed = typed; this.chosen = -1;
    this.list.replaceChildren(...this.words.map((word, i) => {
      const item = document.createElement("li"), small = document.createElement("small");
      item.id = `${this.caret.id}-${i}`; item.setAttribute("role", "option"); item.setAttribute("aria-selected", "false");
      small.textContent = kind; item.append(word, small);
      item.addEventListener("mousedown", (event) => { event.preventDefault(); this.take(i); });
      return item;
    }));
    this.list.hidden = !this.words.length; this.input.setAttribute("aria-expanded", String(!this.list.hidden));
  }
  close() { this.list.hidden = true; this.input.setAttribute("aria-expanded", "false"); this.input.removeAttribute("aria-activedescendant"); }
  take(i) {
    const end = this.input.selectionStart, word = /^[\w.]+$|^'|^-?\d/.test(this.words[i]) ? this.words[i] : `"${this.words[i]}"`;
    this.input.setRangeText(word, end - this.typed, end, "end"); this.close(); this.input.focus(); this.check();
  }
  press(event) {
    if (event.key === "Enter" && !event.shiftKey && (this.list.hidden || this.chosen < 0)) { event.preventDefault(); this.close(); return this.input.form.requestSubmit(); }
    if (this.list.hidden) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { this.chosen = (this.chosen + step + this.words.length) % this.words.length; this.mark(); }
    else if (["Enter", "Tab"].includes(event.key) && this.chosen >= 0) this.take(this.chosen);
    else if (event.key === "Escape") this.close();
    else return;
    event.preventDefault();
  }
  mark() {
    $$("li", this.list).forEach((item, i) => item.setAttribute("aria-selected", String(i === this.chosen)));
    const item = this.list.children[this.chosen];
    this.input.setAttribute("aria-activedescendant", item.id); item.scrollIntoView({ block: "nearest" });
  }
}

function enablePlayground() {
  const form = $("[data-playground]"), target = $("[data-tried]");
  if (!form) return;
  const run = () => {
    const asked = { of: $("[name=of]", form).value, filter: $("textarea", form).value };
    setQuery(asked); load(target, `/fragments/tried?${new URLSearchParams(asked)}`);
  };
  form.addEventListener("filter", later(150, run));
  $("[name=of]", form).addEventListener("change", run);
}

function enableLiveFilter() {
  const form = $("[data-live-filter]"), target = $("[data-fragment-base]");
  if (form && target) form.addEventListener("filter", (event) => {
    setQuery({ filter: event.detail, before: "" });
    load(target, `${target.dataset.fragmentBase}?${new URLSearchParams({ of: target.dataset.of, filter: event.detail })}`);
  });
}

// ---- heat strip: arrow keys walk over the cells ----
function enableHeat(root) {
  for (const heat of $$("[data-heat]", root)) {
    const cells = $$(".cells button", heat), text = $("[data-cell-text]", heat);
    const tell = (cell) => { text.textContent = `· ${cell.getAttribute("aria-label")}`; };
    cells.forEach((cell, i) => {
      cell.addEventListener("mouseenter", () => tell(cell));
      cell.addEventListener("focus", () => tell(cell));
      cell.addEventListener("click", () => {
        const form = $("[data-live-filter]");
        if (form) { $("[name=from]", form).value = cell.dataset.first; form.requestSubmit(); }
      });
      cell.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1, Home: -i, End: cells.length - 1 - i }[event.key];
        if (step === undefined || !cells[i + step]) return;
        event.preventDefault(); cell.tabIndex = -1; cells[i + step].tabIndex = 0; cells[i + step].focus();
      });
    });
    const more = $("[data-more]", heat), target = heat.closest("[data-fragment-base]");
    if (more && target) more.addEventListener("click", (event) => {
      event.preventDefault();
      load(target, `${target.dataset.fragmentBase}?${new URLSearchParams({ of: target.dataset.of, filter: $("textarea", target.closest("section")).value, budget: "long" })}`);
    });
  }
}

// ---- copy, confirm, live figures ----
function enableCopy(root) {
  for (const button of $$("[data-copy]", root)) button.addEventListener("click", async () => {
    const text = $("pre", button.parentElement).textContent;
    try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { getSelection().selectAllChildren($("pre", button.parentElement)); button.textContent = "Selected"; }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});

function drawSpark(svg, numbers) {
  const most = Math.max(...numbers, 1), step = 100 / Math.max(numbers.length - 1, 1);
  const points = numbers.map((each, i) => `${(i * step).toFixed(1)},${(29 - 27 * each / most).toFixed(1)}`).join(" ");
  $(".spark", svg).setAttribute("points", points);
  $(".spark-area", svg).setAttribute("points", `0,30 ${points} 100,30`);
}

function enableLive() {
  const live = $("[data-live-source]");
  if (!live) return;
  const source = new EventSource(live.dataset.liveSource), seen = new Map(), attention = $("[data-refresh]");
  let events = 0;
  source.addEventListener("message", (event) => {
    const found = JSON.parse(event.data);
    for (const [key, text] of Object.entries(found.texts)) for (const place of $$(`[data-live="${CSS.escape(key)}"]`)) place.textContent = text;
    for (const place of $$("[data-live]")) place.closest(".figure").classList.toggle("alert", found.alerts.includes(place.dataset.live));
    if (attention && events++ % 3 === 2 && !attention.contains(document.activeElement)) load(attention, attention.dataset.refresh, true);
    for (const [key, number] of Object.entries(found.rates)) {
      const numbers = [...(seen.get(key) ?? []), number].slice(-60);
      seen.set(key, numbers);
      for (const svg of $$(`svg[data-spark="${CSS.escape(key)}"]`)) drawSpark(svg, numbers);
    }
  });
  addEventListener("pagehide", () => source.close());
}

function enable(root) {
  enableSorting(root); enableHeat(root); enableCopy(root);
  for (const box of $$("[data-filter-box]", root)) new FilterBox(box);
}
enable(document); enablePlayground(); enableLiveFilter(); enableLive();

// ---- forms that ask the API ----
function readForm(form) {
  const body = form.dataset.fixed ? JSON.parse(form.dataset.fixed) : {};
  let path = form.dataset.api.slice(form.dataset.api.indexOf(" ") + 1), whole;
  for (const field of $$("input, select, textarea", form)) {
    let value = field.value;
    if (path.includes(`{${field.name}}`) && field.name) { path = path.replace(`{${field.name}}`, encodeURIComponent(value)); continue; }
    if (value === "" && form.dataset.nullable === field.name) value = null;
    else if (field.hasAttribute("data-json")) {
      if (value.trim() === "") continue;
      try { value = JSON.parse(value); } catch (problem) { throw new Error(`${field.closest("label").firstChild.textContent.trim()}: ${problem.message}`); }
    } else if (value === "" && !field.hasAttribute("data-keep") && field.type !== "select-one") continue;
    if (!field.name) whole = value; else body[field.name] = value;
  }
  const [outer, inner] = (form.dataset.wrap ?? "").split(":");
  if (outer) { body[outer] = inner in body ? { [inner]: body[inner] } : {}; delete body[inner]; }
  return { path, body: whole ?? body };
}

async function askApi(form) {
  const answer = $("[data-answer]", form), method = form.dataset.api.split(" ")[0];
  const tell = (text, bad) => { answer.textContent = text; answer.className = bad ? "red small" : "soft small"; };
  try {
    const { path, body } = readForm(form);
    const response = await fetch(path, { method, headers: { "Content-Type": "application/json" }, body: method === "DELETE" ? undefined : JSON.stringify(body) });
    if (response.status === 401 && !response.url.includes("/api/")) return void location.reload();
    if (!response.ok) {
      const found = await response.json().catch(() => ({}));
      return tell(found.reason ?? found.detail ?? `refused: ${response.status}`, true);
    }
    if (method === "DELETE" && location.pathname === "/queue" && !path.includes("/messages/") && !path.endsWith("/contents")) location.assign("/queues");
    else location.reload();
  } catch (problem) { tell(problem.message, true); }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || !form.dataset.api) return;
  event.preventDefault();
  askApi(form);
});
for (const select of $$("[data-submit]")) select.addEventListener("change", () => select.form.requestSubmit());
