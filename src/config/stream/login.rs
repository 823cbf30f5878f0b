//! `oauth` and `aws`: logins by token. Checks them, and builds the [`Login`] that every client of the cluster shares. `kerberos`: a login
//! by ticket, which follows from properties.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use crate::config::file::At;
use crate::config::raw::{RawAws, RawKerberos, RawOAuth, RawSasl};
use crate::kafka::client::login::{Aws, Login, Oidc};

/// The logins of one side, as written.
#[derive(Clone, Copy)]
pub(super) struct RawLogins<'a> {
    /// By password.
    pub(super) sasl: Option<&'a RawSasl>,
    /// By a token endpoint.
    pub(super) oauth: Option<&'a RawOAuth>,
    /// By AWS credentials.
    pub(super) aws: Option<&'a RawAws>,
    /// By Kerberos.
    pub(super) kerberos: Option<&'a RawKerberos>,
}

impl RawLogins<'_> {
    /// True if there is any.
    pub(super) fn any(self) -> bool {
        self.sasl.is_some() || self.kerberos.is_some() || self.by_token()
    }

    /// True if clients log in by token.
    pub(super) fn by_token(self) -> bool {
        self.oauth.is_some() || self.aws.is_some()
    }

    /// The login by token; the `inherited` one if this side has no login of its own.
    pub(super) fn build(self, inherited: Option<Arc<Login>>, at: At<'_>, base: &Path) -> Option<Arc<Login>> {
        let tokens = [("oauth", self.oauth.is_some()), ("aws", self.aws.is_some())];
        let written = tokens.into_iter().chain([("sasl", self.sasl.is_some()), ("kerberos", self.kerberos.is_some())]);
        let keys: Vec<&str> = written.filter(|(_, there)| *there).map(|(key, _)| key).collect();
        if let [first, second, ..] = keys.as_slice() {
            at.key(second).refuse(format!("`{first}` and `{second}` are both there: keep one login"));
        }
        if !self.any() {
            return inherited;
        }
        let oauth = self.oauth.and_then(|raw| oidc(raw, at.key("oauth"), base));
        let login = oauth.map(Login::Oidc).or_else(|| self.aws.and_then(|raw| aws(raw, at.key("aws"))).map(Login::Aws));
        login.map(Arc::new)
    }
}

/// The settings that follow from `kerberos`, by property.
pub(super) fn kerberos(raw: &RawKerberos, at: At<'_>, base: &Path) -> BTreeMap<String, SecretString> {
    if !cfg!(feature = "kerberos") {
        at.refuse("this build has no Kerberos: build it with `--features kerberos`, or log in another way");
        return BTreeMap::new();
    }
    // They become part of a command that gets the ticket.
    let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "@/._-".contains(c));
    let mut properties = BTreeMap::from([("sasl.mechanism".to_owned(), SecretString::from("GSSAPI"))]);
    let keytab = raw.keytab.as_ref().map(|path| base.join(path).to_string_lossy().into_owned());
    if keytab.as_ref().is_some_and(|path| fs::File::open(path).is_err()) {
        at.key("keytab").refuse("`keytab` cannot be read: check path and permissions");
    }
    for (key, property, value) in [
        ("principal", "sasl.kerberos.principal", &raw.principal),
        ("keytab", "sasl.kerberos.keytab", &keytab),
        ("service", "sasl.kerberos.service.name", &raw.service),
    ] {
        let Some(value) = value else { continue };
        if !plain(value) {
            at.key(key).refuse(format!(
                "`{key}` is empty or has other characters than letters, digits, `@`, `/`, `.`, `_` and `-`"
            ));
        }
        properties.insert(property.to_owned(), value.clone().into());
    }
    properties
}

fn oidc(raw: &RawOAuth, at: At<'_>, base: &Path) -> Option<Oidc> {
    let endpoint = raw.token_endpoint.as_deref().map(str::trim).filter(|url| {
        let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or_default();
        let fine = !host.is_empty()
            && !host.starts_with(['/', ':'])
            && !host.contains(|c: char| c == '@' || c.is_whitespace());
        if !fine {
            at.key("token_endpoint")
                .refuse("`token_endpoint` is not an address: write https://HOST/PATH, without a login");
        }
        let plain =
            url.starts_with("http://") && !["localhost", "127.", "[::1]"].iter().any(|near| host.starts_with(near));
        if fine && plain {
            at.key("token_endpoint").warn(
                "`token_endpoint` is asked without TLS, so `client_secret` can be read on the network: write https://",
            );
        }
        fine
    });
    let ca = raw.ca.as_ref().map(|path| {
        let read = fs::read(base.join(path)).ok().filter(|pem| pem.windows(11).any(|w| w == b"-----BEGIN "));
        if read.is_none() {
            at.key("ca")
                .refuse(format!("{} in `oauth.ca` cannot be read as PEM: check it", at.key("ca").show(path.display())));
        }
        read.unwrap_or_default()
    });
    let client_secret = &raw.client_secret.as_ref()?.0;
    if client_secret.expose_secret().is_empty() {
        at.key("client_secret").refuse("`client_secret` is empty: put it into the variable or the file");
    }
    Some(Oidc {
        endpoint: endpoint?.to_owned(),
        client_id: raw.client_id.clone()?,
        client_secret: client_secret.clone(),
        scope: raw.scope.clone(),
        ca,
    })
}

fn aws(raw: &RawAws, at: At<'_>) -> Option<Aws> {
    let region = raw.region.as_ref()?;
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if region.is_empty() || !region.chars().all(letters) {
        at.key("region").refuse("`region` is not a region: write it as in eu-central-1");
    }
    let secret = &raw.secret_access_key.as_ref()?.0;
    if secret.expose_secret().is_empty() {
        at.key("secret_access_key").refuse("`secret_access_key` is empty: put it into the variable or the file");
    }
    Some(Aws {
        region: region.clone(),
        access_key_id: raw.access_key_id.clone()?,
        secret_access_key: secret.clone(),
        session_token: raw.session_token.as_ref().map(|token| token.0.clone()),
    })
}
