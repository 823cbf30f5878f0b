//! The console at `/` and `/engine`, `/status.json`, `/metrics`, `/healthz`, `/readyz`: read-only, loopback unless configured.
//!
//! With a token every request for figures must show it: as a bearer token, or, for browsers, as the password of any user.
//! Without one, requests must be for a loopback name: a page in a browser on the same machine could otherwise read the
//! figures under a name of its own. No other origin may read, frame or embed anything, and nothing is loaded from
//! elsewhere.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use super::console::ask::{Ask, Page};
use super::{Telemetry, console, html};
use crate::model::event::Millis;

/// Starts to serve on `listen`; returns the address it got. Ends with the runtime.
pub async fn serve(
    listen: SocketAddr,
    token: Option<SecretString>,
    telemetry: Arc<Telemetry>,
    clock: fn() -> Millis,
) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    telemetry.started(clock());
    tokio::spawn(async move {
        if let Err(error) =
            axum::serve(listener, router(token, Served { telemetry, clock, drawn: Arc::default() })).await
        {
            tracing::error!(%error, "the HTTP side has stopped");
        }
    });
    tracing::info!(%address, "serving the console, /metrics, /healthz and /readyz");
    Ok(address)
}

/// What every page is made from.
#[derive(Clone)]
struct Served {
    telemetry: Arc<Telemetry>,
    clock: fn() -> Millis,
    /// The last pages and when they were drawn. There are as many as there are ways to ask.
    drawn: Arc<Mutex<BTreeMap<Ask, (Millis, Bytes)>>>,
}

/// Milliseconds for which a page is good for everybody. Longer hides a release; shorter lets many readers cost more.
const FRESH_MS: i64 = 1000;

/// Nothing from elsewhere, nothing inline, nobody's frame.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const SCRIPT: &str = include_str!("console.js");

fn router(token: Option<SecretString>, served: Served) -> Router {
    Router::new()
        .route("/", get(|served, query| console(Page::Releases, served, query)))
        .route("/engine", get(|served, query| console(Page::Engine, served, query)))
        .route("/status.json", get(status))
        .route("/metrics", get(metrics))
        .route_layer(from_fn_with_state(Arc::new(token), guard))
        // Probes carry no token and learn nothing but that the service is there.
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/console.css", get(|| async { typed("text/css", html::STYLE) }))
        .route("/console.js", get(|| async { typed("text/javascript", SCRIPT) }))
        .layer(map_response(sealed))
        .with_state(served)
}

async fn guard(State(token): State<Arc<Option<SecretString>>>, request: Request, next: Next) -> Response {
    match &*token {
        Some(token) if !shows(request.headers(), token) => {
            let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"veilstream\", charset=\"UTF-8\"")];
            (StatusCode::UNAUTHORIZED, challenge, "the token is needed, as bearer or as password\n").into_response()
        }
        None if !is_for_loopback(request.headers()) => {
            (StatusCode::FORBIDDEN, "ask for localhost, or configure a token\n").into_response()
        }
        _ => next.run(request).await,
    }
}

/// True if the request shows the token. Looks at every byte, so that the time taken tells nothing about it.
fn shows(headers: &HeaderMap, token: &SecretString) -> bool {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let password;
    let shown = match shown.and_then(|value| value.split_once(' ')) {
        Some(("Bearer", shown)) => shown.as_bytes(),
        Some(("Basic", encoded)) => {
            password = BASE64_STANDARD.decode(encoded).unwrap_or_default();
            password.splitn(2, |byte| *byte == b':').nth(1).unwrap_or_default()
        }
        _ => return false,
    };
    let token = token.expose_secret().as_bytes();
    shown.len() == token.len() && shown.iter().zip(token).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

fn is_for_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    host.is_some_and(|host| {
        let host = host.host().trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    })
}

/// What holds for every answer.
async fn sealed(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn typed(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// Draws the page at most once in [`FRESH_MS`] for all callers, on a thread that does not delay sources and sinks.
async fn console(page: Page, State(served): State<Served>, Query(query): Query<BTreeMap<String, String>>) -> Response {
    let ask = Ask::new(page, &query);
    let mut drawn = served.drawn.lock().await;
    let now = (served.clock)();
    let fresh = drawn.get(&ask).filter(|(at, _)| (0..FRESH_MS).contains(&(now.0 - at.0))).map(|(_, page)| page.clone());
    let page = match fresh {
        Some(page) => page,
        None => {
            let telemetry = Arc::clone(&served.telemetry);
            let draw = move || console::page(&telemetry.view(now).since(ask.seconds()), ask);
            let Ok(page) = tokio::task::spawn_blocking(draw).await else {
                return StatusCode::INTERNAL_SERVER_ERROR.into_response();
            };
            let page = Bytes::from(page);
            drawn.insert(ask, (now, page.clone()));
            page
        }
    };
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

async fn status(State(served): State<Served>) -> Response {
    let status = served.telemetry.view((served.clock)()).json().to_string();
    ([(header::CONTENT_TYPE, "application/json")], status).into_response()
}

async fn metrics(State(served): State<Served>) -> Response {
    match served.telemetry.metrics_text((served.clock)()) {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn ready(State(served): State<Served>) -> Response {
    match served.telemetry.unready() {
        None => "ready\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = SecretString::from("s3cret");
        let shows = |value: &str| shows(&headers(header::AUTHORIZATION, value), &token);
        assert!(shows("Bearer s3cret"));
        assert!(shows("Basic YW55Ym9keTpzM2NyZXQ="), "anybody:s3cret");
        for other in [
            "Basic YW55Ym9keTpzM2NyZQ==",
            "Basic czNjcmV0",
            "Basic",
            "Basic %%%",
            "Bearer s3cre",
            "Bearer s3cret ",
            "Bearer S3cret",
            "s3cret",
            "Basic s3cret",
            "Bearer ",
        ] {
            assert!(!shows(other), "{other}");
        }
    }

    #[test]
    fn foreign_names_are_not_loopback() {
        for (host, expected) in [
            ("localhost:9464", true),
            ("127.0.0.1", true),
            ("[::1]:9464", true),
            ("evil.example:9464", false),
            ("127.0.0.1.evil.example", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(is_for_loopback(&headers(header::HOST, host)), expected, "{host}");
        }
        assert!(!is_for_loopback(&HeaderMap::new()));
    }
}
