"""Numbers become pictures: a view is a small JSON, laid out into marks once; SVG and views.js play them."""
