//! `registry`: its address, login and TLS. Everything that the client needs is read here, so that a wrong file is reported with its line.

use std::path::{Path, PathBuf};

use secrecy::ExposeSecret as _;

use super::properties;
use crate::codec::registry::RegistryTls;
use crate::config::file::At;
use crate::config::raw::{RawRegistry, RawTls};
use crate::kafka::client::RegistryConfig;

/// Builds a `registry` section.
pub(super) fn registry(raw: &RawRegistry, at: At<'_>, base: &Path) -> Option<RegistryConfig> {
    let before = at.problems();
    let url = raw.url.as_deref().map(|url| url.trim().trim_end_matches('/'));
    if let Some(url) = url {
        let at = at.key("url");
        let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or_default();
        if host.contains('@') {
            at.refuse("`url` holds a login, and would be shown: use `username` and `password`");
        } else if raw.tls.is_some() && url.starts_with("http://") {
            at.refuse("`tls` means something only for https: write https://HOST:PORT, or remove `tls`");
        } else if host.is_empty() || host.starts_with(['/', ':']) || host.contains(char::is_whitespace) {
            at.refuse("`url` is not an address: write http://HOST:PORT or https://HOST:PORT");
        }
    }
    let credentials = match (&raw.username, &raw.password) {
        (Some(username), Some(password)) => Some((username.clone(), password.0.clone())),
        (Some(_), None) if !at.lost("password") => {
            at.key("username").refuse("`username` needs a password: add `password: ${file:PATH}`");
            None
        }
        (None, Some(_)) if !at.lost("username") => {
            at.key("password").refuse("`password` needs a user name: add `username`");
            None
        }
        _ => None,
    };
    let token = raw.token.as_ref().map(|token| token.0.clone());
    if token.is_some() && (raw.username.is_some() || raw.password.is_some()) {
        at.key("token").refuse("`token` and a password are both there: keep one login");
    }
    if token.as_ref().is_some_and(|token| !is_header_text(token.expose_secret())) {
        at.key("token").refuse("`token` is empty or cannot stand in an HTTP header: check the variable or the file");
    }
    let tls =
        raw.tls.as_ref().map_or_else(|| Some(RegistryTls::default()), |raw| registry_tls(raw, at.key("tls"), base));
    let url = url?.to_owned();
    Some(RegistryConfig { url, credentials, token, tls: tls? }).filter(|_| at.problems() == before)
}

fn is_header_text(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Reads authorities, certificate and key of a registry's `tls`.
fn registry_tls(raw: &RawTls, at: At<'_>, base: &Path) -> Option<RegistryTls> {
    let before = at.problems();
    let checked = properties::tls_properties(raw, at, base);
    let read = |path: &Option<PathBuf>| std::fs::read(base.join(path.as_ref()?)).ok();
    let (ca, certificate, key) = (read(&raw.ca), read(&raw.certificate), read(&raw.key));
    if at.problems() > before {
        return None;
    }
    let mut tls = Some(RegistryTls::default());
    if let Some(ca) = ca {
        tls = tls.and_then(|tls| tls.trusting(&ca));
        if tls.is_none() {
            at.key("ca").refuse("`tls.ca` holds no certificate: check it");
        }
    }
    if let Some((certificate, key)) = certificate.zip(key) {
        tls = tls.and_then(|tls| tls.showing(&certificate, &key, checked.get(properties::KEY_PASSWORD)));
        if tls.is_none() {
            at.key("key")
                .refuse("`tls.key` is not the key of `tls.certificate`, or its password is wrong: check the three");
        }
    }
    tls
}
