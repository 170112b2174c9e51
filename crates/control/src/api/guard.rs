//! Keeps web pages out.
//!
//! A page of any site can make a browser on this machine send requests to a loopback port. Such a
//! request names the page's origin, or says that it crosses sites, or (after the page's own name
//! was made to resolve to 127.0.0.1) names a host that is not this one. None of these is served.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::ApiError;

pub(super) async fn guard(
    State(loopback): State<Option<SocketAddr>>,
    request: Request,
    next: Next,
) -> Response {
    let from_page = from_page(request.headers());
    let verdict = from_page.and_then(|()| match loopback {
        Some(address) => names_us(&request, address),
        None => Ok(()),
    });
    match verdict {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn from_page(headers: &HeaderMap) -> Result<(), ApiError> {
    let crosses = headers
        .get("sec-fetch-site")
        .is_some_and(|site| site != "none" && site != "same-origin");
    if headers.contains_key(header::ORIGIN) || crosses {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "this interface does not serve web pages",
            "use a program such as curl, which sends no Origin header",
        ));
    }
    Ok(())
}

fn names_us(request: &Request, address: SocketAddr) -> Result<(), ApiError> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let named = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host
            .to_str()
            .ok()
            .and_then(|host| host.parse::<Authority>().ok()),
        _ => None,
    };
    let good = named.is_some_and(|authority| {
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let good_host = host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let good_port = authority.port().is_none() || authority.port_u16() == Some(address.port());
        good_host && good_port
    });
    if good {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::FORBIDDEN,
        "the Host header does not name this interface",
        format!("send Host: {address}, or localhost with the same port"),
    ))
}
