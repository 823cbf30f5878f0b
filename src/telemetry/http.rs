//! `/metrics`, `/healthz`, `/readyz`: read-only, loopback unless configured.
//!
//! With a token every request for figures must show it. Without one, requests must be for a loopback name: a page in a
//! browser on the same machine could otherwise read the figures under a name of its own.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::net::TcpListener;

use super::Telemetry;

/// Starts to serve on `listen`; returns the address it got. Ends with the runtime.
pub async fn serve(
    listen: SocketAddr,
    token: Option<SecretString>,
    telemetry: Arc<Telemetry>,
) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router(token, telemetry)).await {
            tracing::error!(%error, "the HTTP side has stopped");
        }
    });
    tracing::info!(%address, "serving /metrics, /healthz and /readyz");
    Ok(address)
}

fn router(token: Option<SecretString>, telemetry: Arc<Telemetry>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route_layer(from_fn_with_state(Arc::new(token), guard))
        // Probes carry no token and learn nothing but that the service is there.
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(telemetry)
}

async fn guard(State(token): State<Arc<Option<SecretString>>>, request: Request, next: Next) -> Response {
    match &*token {
        Some(token) if !shows(request.headers(), token) => {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            (StatusCode::UNAUTHORIZED, challenge, "a bearer token is needed\n").into_response()
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
    let Some(shown) = shown.and_then(|value| value.strip_prefix("Bearer ")) else { return false };
    let (shown, token) = (shown.as_bytes(), token.expose_secret().as_bytes());
    shown.len() == token.len() && shown.iter().zip(token).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

fn is_for_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    host.is_some_and(|host| {
        let host = host.host().trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    })
}

async fn metrics(State(telemetry): State<Arc<Telemetry>>) -> Response {
    match telemetry.metrics_text() {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn ready(State(telemetry): State<Arc<Telemetry>>) -> Response {
    if telemetry.is_ready() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready: nothing is assigned, or it is draining\n").into_response()
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
        for other in ["Bearer s3cre", "Bearer s3cret ", "Bearer S3cret", "s3cret", "Basic s3cret", "Bearer "] {
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
