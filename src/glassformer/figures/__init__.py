"""Numbers become pictures: a view is a small JSON; Python draws it as SVG and terminal text, views.js draws it live."""
