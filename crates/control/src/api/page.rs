//! `/`: the page that shows and changes the target in a browser.
//!
//! Its files contain no data and need no token: the page sends the user's token with each request to
//! `/v1`. Invariant: the browser loads nothing from elsewhere, and runs no script but these files.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::routing::get;

/// The files: path, media type, content.
const FILES: [(&str, &str, &str); 9] = [
    ("/", HTML, include_str!("../page/index.html")),
    (
        "/page/style.css",
        "text/css",
        include_str!("../page/style.css"),
    ),
    (
        "/page/icon.svg",
        "image/svg+xml",
        include_str!("../page/icon.svg"),
    ),
    ("/page/main.js", SCRIPT, include_str!("../page/main.js")),
    ("/page/api.js", SCRIPT, include_str!("../page/api.js")),
    ("/page/model.js", SCRIPT, include_str!("../page/model.js")),
    ("/page/table.js", SCRIPT, include_str!("../page/table.js")),
    ("/page/chart.js", SCRIPT, include_str!("../page/chart.js")),
    (
        "/page/actions.js",
        SCRIPT,
        include_str!("../page/actions.js"),
    ),
];

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Headers of each file. Connections close: they need no token, and their number is limited.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CACHE_CONTROL, "no-cache"),
    (header::CONNECTION, "close"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

pub(super) fn routes() -> Router {
    let add = |router: Router,
               (path, media, content): (&'static str, &'static str, &'static str)| {
        let answer = async move || {
            let media = (header::CONTENT_TYPE, HeaderValue::from_static(media));
            ([media], HEADERS, content)
        };
        router.route(path, get(answer))
    };
    FILES.into_iter().fold(Router::new(), add)
}
