//! `/`: the page that shows and changes a process in a browser.
//!
//! Its files contain no data and need no token: the page sends the user's token with each request to
//! `/v1`. Invariant: the browser loads nothing from elsewhere, and runs no script but these files.

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, header};
use axum::routing::get;

/// What the page of a kind of process shows.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Its sections, in HTML.
    pub content: &'static str,
    /// The script that fills them.
    pub script: &'static str,
}

/// The page of a target.
pub(super) const TARGET: Page = Page {
    content: include_str!("../page/target.html"),
    script: include_str!("../page/main.js"),
};

/// What precedes and follows the content.
const FRAME: [&str; 2] = [
    include_str!("../page/top.html"),
    include_str!("../page/bottom.html"),
];

/// The files of every page: path, media type, content.
const FILES: [(&str, &str, &str); 8] = [
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
    ("/page/api.js", SCRIPT, include_str!("../page/api.js")),
    ("/page/model.js", SCRIPT, include_str!("../page/model.js")),
    (
        "/page/session.js",
        SCRIPT,
        include_str!("../page/session.js"),
    ),
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

impl Page {
    /// The routes of the page.
    pub fn routes(self) -> Router {
        let html = [FRAME[0], self.content, FRAME[1]].concat();
        let router = add(Router::new(), "/", HTML, html);
        let own = [("/page/main.js", SCRIPT, self.script)];
        let files = FILES.into_iter().chain(own);
        files.fold(router, |router, (path, media, content)| {
            add(router, path, media, content)
        })
    }
}

/// Adds a file.
fn add(router: Router, path: &str, media: &'static str, content: impl Into<Bytes>) -> Router {
    let content: Bytes = content.into();
    let answer = async move || {
        let media = (header::CONTENT_TYPE, HeaderValue::from_static(media));
        ([media], HEADERS, content.clone())
    };
    router.route(path, get(answer))
}
