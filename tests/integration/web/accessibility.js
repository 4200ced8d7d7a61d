// What a screen reader, a keyboard and weak eyes need of a page: the problems that were found, as texts.
() => {
  const problems = [];
  const shown = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== "hidden";
  const describe = (e) => `<${e.tagName.toLowerCase()} ${e.className || e.name || e.type || ""}> ${(e.textContent || "").trim().slice(0, 40)}`;
  const nameOf = (e) => (e.getAttribute("aria-label") || [...(e.labels ?? [])].map((l) => l.textContent).join(" ") || e.textContent || e.title || "").trim();
  for (const e of document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, [role=region], [role=listbox], svg:not([aria-hidden])")) {
    if (shown(e) && !nameOf(e)) problems.push(`no name: ${describe(e)}`);
  }
  for (const table of document.querySelectorAll("table")) {
    if (!table.caption && !table.getAttribute("aria-label")) problems.push(`no caption: ${describe(table)}`);
    for (const th of table.querySelectorAll("th")) if (!th.scope) problems.push(`no scope: ${describe(th)}`);
    for (const th of table.querySelectorAll("th")) if (!th.textContent.trim()) problems.push(`empty heading: ${describe(th)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) problems.push(`id twice: ${id}`);
  for (const e of document.querySelectorAll("[aria-describedby], [aria-labelledby], [aria-controls]")) {
    for (const name of ["aria-describedby", "aria-labelledby", "aria-controls"]) {
      for (const id of (e.getAttribute(name) ?? "").split(" ").filter(Boolean)) if (!document.getElementById(id)) problems.push(`${name} leads nowhere: ${id}`);
    }
  }
  if (document.querySelectorAll("h1").length !== 1) problems.push("not one h1");
  if (document.querySelectorAll("main").length !== 1) problems.push("not one main");
  if (!document.documentElement.lang || !document.title) problems.push("no language or title");
  let level = 1;
  for (const e of document.querySelectorAll("h1, h2, h3, h4")) {
    const own = Number(e.tagName[1]);
    if (own > level + 1) problems.push(`heading skips a level: ${describe(e)}`);
    level = own;
  }
  for (const e of document.querySelectorAll("[role=img] a[href], [role=img] button, [aria-hidden=true] a[href], [aria-hidden=true] button")) problems.push(`hidden from screen readers: ${describe(e)}`);
  for (const e of document.querySelectorAll(".table, .graph")) {
    if (e.scrollWidth > e.clientWidth + 1 && e.tabIndex < 0 && !e.querySelector("a[href], button, input, textarea")) problems.push(`scrolls, but not by keyboard: ${describe(e)}`);
  }
  const channels = (text) => { const found = /rgba?\(([^)]+)\)/.exec(text); return found ? found[1].split(/[ ,/]+/).map(Number) : [0, 0, 0, 1]; };
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = channels(getComputedStyle(e).backgroundColor); if ((c[3] ?? 1) > 0.5) return c; } return [255, 255, 255]; };
  const seen = new Set();
  for (const e of document.querySelectorAll("main *, .side *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !shown(e) || e.closest("svg, [hidden], .visually-hidden, option, .busy") || e.disabled) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(channels(style.color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5 && !seen.has(e.className)) { seen.add(e.className); problems.push(`contrast ${ratio.toFixed(2)}: ${describe(e)}`); }
  }
  return problems;
}
