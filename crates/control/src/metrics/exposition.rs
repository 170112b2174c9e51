//! The two text formats of `/metrics`, and the choice between them by the Accept header.
//!
//! `[OpenMetrics 1.0]` and the older text format of Prometheus, version 0.0.4, which every scraper
//! reads. `[RFC 9110 §12.5.1]`

use std::collections::BTreeSet;

use axum::http::{HeaderMap, header};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposition {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text, version 0.0.4.
    Text,
}

impl Exposition {
    /// Returns OpenMetrics for a client that names it and does not prefer text, and text for every
    /// other client.
    pub(crate) fn negotiated(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT).iter();
        let accepted = accepted.filter_map(|value| value.to_str().ok());
        let ranges: Vec<_> = accepted
            .flat_map(|value| value.split(','))
            .map(Range::parse)
            .collect();
        let quality = |media: &str, versions: &[&str]| {
            let fits = ranges.iter().filter(|range| range.covers(media, versions));
            fits.map(|range| range.permille).max()
        };
        let open = quality("application/openmetrics-text", &["1.0.0", "0.0.1"]);
        let text = quality("text/plain", &["0.0.4"])
            .or_else(|| quality("text/*", &[]))
            .or_else(|| quality("*/*", &[]));
        match open {
            Some(open) if open > 0 && open >= text.unwrap_or(0) => Self::OpenMetrics,
            _ => Self::Text,
        }
    }

    /// The media type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns OpenMetrics text in this format.
    pub(super) fn convert(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Text => plain(&text),
        }
    }
}

/// A media range of an Accept header.
struct Range<'a> {
    /// Type and subtype, each of which may be `*`.
    media: &'a str,
    version: Option<&'a str>,
    /// The quality value in thousandths; 0 refuses the type.
    permille: u16,
}

impl<'a> Range<'a> {
    fn parse(range: &'a str) -> Self {
        let mut parts = range.split(';').map(str::trim);
        let mut parsed = Self {
            media: parts.next().unwrap_or_default(),
            version: None,
            permille: 1000,
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim() {
                name if name.eq_ignore_ascii_case("version") => parsed.version = Some(value),
                name if name.eq_ignore_ascii_case("q") => parsed.permille = permille(value),
                _ => {}
            }
        }
        parsed
    }

    /// Returns true if it is this type, in one of these versions or any.
    fn covers(&self, media: &str, versions: &[&str]) -> bool {
        let version = self
            .version
            .is_none_or(|version| versions.contains(&version));
        self.media.eq_ignore_ascii_case(media) && version
    }
}

/// Reads a quality value: a number from 0 to 1 with up to three digits after the point. Anything
/// else counts as 1.
fn permille(text: &str) -> u16 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit());
    match (whole, format!("{part:0<3}").parse()) {
        ("0", Ok(permille)) if digits => permille,
        _ => 1000,
    }
}

/// Returns OpenMetrics text as Prometheus text: there a counter's family has the name of its
/// samples, which end in `_total`, and there are neither units nor an end.
fn plain(text: &str) -> String {
    let family = |line: &str| {
        let line = line.strip_prefix("# TYPE ")?;
        line.strip_suffix(" counter").map(str::to_owned)
    };
    let counters: BTreeSet<_> = text.lines().filter_map(family).collect();
    let mut plain = String::with_capacity(text.len());
    for line in text.lines() {
        if line.starts_with("# UNIT ") || line == "# EOF" {
            continue;
        }
        let described = ["# HELP ", "# TYPE "].into_iter().find_map(|start| {
            let (name, rest) = line.strip_prefix(start)?.split_once(' ')?;
            counters.contains(name).then_some((start, name, rest))
        });
        match described {
            Some((start, name, rest)) => {
                for part in [start, name, "_total ", rest] {
                    plain.push_str(part);
                }
            }
            None => plain.push_str(line),
        }
        plain.push('\n');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn chosen(accept: &[&'static str]) -> Exposition {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(header::ACCEPT, HeaderValue::from_static(value));
        }
        Exposition::negotiated(&headers)
    }

    /// Every client got OpenMetrics, also those that read text alone.
    #[test]
    fn a_client_gets_the_format_that_it_accepts() {
        use Exposition::{OpenMetrics, Text};
        for (accept, format) in [
            (&[][..], Text),
            (&["*/*"], Text),
            (&["text/plain"], Text),
            (&["text/plain;version=0.0.4;q=0.5, */*;q=0.1"], Text),
            (&["application/json"], Text),
            (&["application/openmetrics-text"], OpenMetrics),
            (
                &["application/OpenMetrics-Text; Version=\"1.0.0\""],
                OpenMetrics,
            ),
            (&["application/openmetrics-text; version=2.0.0"], Text),
            (&["application/openmetrics-text;q=0, text/plain"], Text),
            (
                &["application/openmetrics-text;q=0.5", "text/plain;q=0.25"],
                OpenMetrics,
            ),
            (&["application/openmetrics-text;q=0.5, text/*"], Text),
            (&["application/openmetrics-text;q=0.5, */*;q=0.8"], Text),
            // Prometheus.
            (
                &["application/openmetrics-text;version=1.0.0;q=0.5,\
                   application/openmetrics-text;version=0.0.1;q=0.4,\
                   text/plain;version=0.0.4;q=0.3,*/*;q=0.2"],
                OpenMetrics,
            ),
        ] {
            assert_eq!(chosen(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn quality_values_are_read_to_the_thousandth() {
        let read = [
            "0", "0.", "0.5", "0.05", "0.999", "1", "1.0", "0.1234", "x", "",
        ]
        .map(permille);
        assert_eq!(read, [0, 0, 500, 50, 999, 1000, 1000, 1000, 1000, 1000]);
    }

    #[test]
    fn counters_of_plain_text_have_the_name_of_their_samples() {
        let open = "# HELP a_bytes Data\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
                    a_bytes_total{x=\"# TYPE\"} 1\n# HELP b Open\n# TYPE b gauge\nb 2\n# EOF\n";
        let text = "# HELP a_bytes_total Data\n# TYPE a_bytes_total counter\n\
                    a_bytes_total{x=\"# TYPE\"} 1\n# HELP b Open\n# TYPE b gauge\nb 2\n";
        assert_eq!(Exposition::Text.convert(open.to_owned()), text);
        assert_eq!(Exposition::OpenMetrics.convert(open.to_owned()), open);
    }
}
