"""The broker over HTTP: the API and the pages, in the broker's own event loop. Needs the extra `server`."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.web.app import make_app as make_app
    from headgate.web.embedded import make_embedded_app as make_embedded_app
    from headgate.web.guard import identity_of as identity_of
    from headgate.web.identity import Identity as Identity
    from headgate.web.listener import HttpListener as HttpListener
    from headgate.web.pages import Site as Site
    from headgate.web.pages import make_pages as make_pages
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "app": ["make_app"],
            "embedded": ["make_embedded_app"],
            "guard": ["identity_of"],
            "identity": ["Identity"],
            "listener": ["HttpListener"],
            "pages": ["Site", "make_pages"],
        },
    )
