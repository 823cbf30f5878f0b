//! Scalars with a unit: durations, shares, sizes, addresses, decimals, and secrets.
//!
//! Each kind says once what it expects and how it parses. The structural check, serde and the JSON Schema all use that.

use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rust_decimal::Decimal;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::SecretString;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value as Json;

use crate::model::record::{canonical_number, canonical_text};

/// The keyword under which a scalar's kind stands in the JSON Schema.
pub(in crate::config) const KIND: &str = "x-kind";

/// A scalar that is written in a notation of its own.
pub(in crate::config) trait Notation: Sized {
    /// Its name in the JSON Schema.
    const KIND: &'static str;
    /// The expected value: completes "expected ...".
    const EXPECTED: &'static str;

    /// Reads it. The error says what is expected where that is more than [`Notation::EXPECTED`], and never holds the value.
    fn parse(value: &Json) -> Result<Self, Option<&'static str>>;

    /// Its JSON types and pattern.
    fn schema() -> Schema;

    /// Reads it; the error completes "..., found x".
    fn read(value: &Json) -> Result<Self, String> {
        Self::parse(value).map_err(|expected| format!("expected {}", expected.unwrap_or(Self::EXPECTED)))
    }
}

/// The mistake in `value` as a scalar of the kind called `kind`.
pub(in crate::config) fn check(kind: &str, value: &Json) -> Result<(), String> {
    match kind {
        RawDuration::KIND => RawDuration::read(value).map(drop),
        RawExtent::KIND => RawExtent::read(value).map(drop),
        RawShare::KIND => RawShare::read(value).map(drop),
        RawSize::KIND => RawSize::read(value).map(drop),
        RawAddress::KIND => RawAddress::read(value).map(drop),
        RawDecimal::KIND => RawDecimal::read(value).map(drop),
        RawScalar::KIND => RawScalar::read(value).map(drop),
        _ => Ok(()),
    }
}

/// Implements the schema of a scalar that has no name of its own there.
macro_rules! inline_schema {
    ($name:ident, $schema:expr) => {
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

/// Declares a notation: its kind, what to write, its schema, and how it is read.
macro_rules! notation {
    ($name:ident, $kind:literal, $expected:literal, $schema:tt, $parse:expr) => {
        impl Notation for $name {
            const KIND: &'static str = $kind;
            const EXPECTED: &'static str = $expected;

            fn parse(value: &Json) -> Result<Self, Option<&'static str>> {
                let parse: fn(&Json) -> Result<Self, Option<&'static str>> = $parse;
                parse(value)
            }

            fn schema() -> Schema {
                let mut schema = json_schema!($schema);
                schema.insert(KIND.into(), $kind.into());
                schema
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::read(&Json::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }

        inline_schema!($name, <Self as Notation>::schema());
    };
}

/// A number and one of `units`, multiplied: `5 KiB`. The error is true if the product is too large.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Result<u64, bool> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| false)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start()).ok_or(false)?;
    number.checked_mul(*factor).ok_or(true)
}

/// A length of time with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawDuration(pub Duration);

/// A century in milliseconds: longer waits are typing errors, and sums of times stay far from overflow.
const MAX_MILLIS: u64 = 36_525 * 86_400_000;

notation!(
    RawDuration,
    "duration",
    "a duration with its unit, such as 200ms, 30s, 5m, 1h or 7d",
    { "type": "string", "pattern": "^[0-9]+ *(ms|s|m|h|d)$" },
    |value| {
        let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        match with_unit(value.as_str().ok_or(None)?, &units) {
            Ok(millis) if millis <= MAX_MILLIS => Ok(Self(Duration::from_millis(millis))),
            Ok(_) | Err(true) => Err(Some("a duration of at most 36525d")),
            Err(false) => Err(None),
        }
    }
);

/// How far a sliding window reaches: a number of records, or a time with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RawExtent {
    /// A number of records.
    Records(u64),
    /// A length of time.
    Time(Duration),
}

notation!(
    RawExtent,
    "extent",
    "a number of records such as 10000, or a time with its unit such as 5m",
    { "type": ["integer", "string"], "minimum": 1, "pattern": "^[0-9]+ *(ms|s|m|h|d)$" },
    |value| {
        let time = || RawDuration::parse(value).map(|time| Self::Time(time.0)).map_err(|_| None);
        match value.as_u64().map_or_else(time, |records| Ok(Self::Records(records)))? {
            Self::Records(0) => Err(Some("1 record or more")),
            Self::Time(time) if time.is_zero() => Err(Some("a time longer than zero")),
            extent => Ok(extent),
        }
    }
);

/// A share between 0 and 1, or between 0% and 100%.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RawShare(pub f64);

notation!(
    RawShare,
    "share",
    "a share between 0 and 1 such as 0.05, or a percentage such as 5%",
    { "type": ["number", "string"], "minimum": 0, "maximum": 1, "pattern": "^[0-9.]+ *%$" },
    |value| {
        let percent = |text: &str| text.trim().strip_suffix('%').and_then(|text| text.trim().parse::<f64>().ok());
        let share = match value {
            Json::String(text) => percent(text).map(|percent| percent / 100.0),
            other => other.as_f64(),
        };
        share.filter(|share| (0.0..=1.0).contains(share)).map(Self).ok_or(None)
    }
);

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawSize(pub u64);

/// The units of sizes, in bytes.
const BYTES: [(&str, u64); 7] = [
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
];

notation!(
    RawSize,
    "size",
    "a size such as 1MiB, 512KiB or 2GiB, or a number of bytes",
    { "type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+ *(B|kB|KiB|MB|MiB|GB|GiB)$" },
    |value| match value {
        Json::String(text) => with_unit(text, &BYTES).map(Self).map_err(|_| None),
        number => number.as_u64().map(Self).ok_or(None),
    }
);

/// An address and a port to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawAddress(pub SocketAddr);

notation!(
    RawAddress,
    "address",
    "an address and a port, such as 127.0.0.1:9464 or [::1]:9464",
    { "type": "string" },
    |value| {
        let text = value.as_str().unwrap_or_default().trim();
        let address = match text.strip_prefix("localhost:") {
            Some(port) => port.parse().ok().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            None => text.parse().ok(),
        };
        address.map(Self).ok_or(None)
    }
);

/// An exact decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) struct RawDecimal(pub Decimal);

notation!(RawDecimal, "decimal", "a number with at most 28 digits", { "type": "number" }, |value| {
    let text = match value {
        Json::Number(number) => number.to_string(),
        Json::String(text) => text.trim().to_owned(),
        _ => String::new(),
    };
    let decimal = Decimal::from_str_exact(&text).or_else(|_| Decimal::from_scientific(&text));
    decimal.map(|decimal| Self(decimal.normalize())).map_err(|_| None)
});

/// A value of a record, as canonical text: 2, 2.0 and "2" are one value. Where it is compared with records, case and
/// invisible characters make no difference either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawScalar(pub String);

notation!(
    RawScalar,
    "value",
    "a value: text, a number, true or false",
    { "type": ["string", "number", "boolean"] },
    |value| match value {
        Json::String(text) => Ok(Self(canonical_text(text).into_owned())),
        Json::Bool(value) => Ok(Self(value.to_string())),
        Json::Number(number) => {
            canonical_number(&number.to_string()).map(|text| Self(text.into_owned())).ok_or(None)
        }
        _ => Err(None),
    }
);

/// A secret: read, never shown.
#[derive(Debug, Clone)]
pub(crate) struct RawSecret(pub SecretString);

impl<'de> Deserialize<'de> for RawSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

inline_schema!(RawSecret, json_schema!({ "type": "string", "writeOnly": true }));

/// The value of a client property: text, number or true/false, read as text and never shown, because it may be a password.
#[derive(Debug, Clone)]
pub(crate) struct RawProperty(pub SecretString);

impl<'de> Deserialize<'de> for RawProperty {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Json::deserialize(deserializer)? {
            Json::String(text) => text.into(),
            other => other.to_string().into(),
        }))
    }
}

inline_schema!(RawProperty, json_schema!({ "type": ["string", "number", "boolean"], "writeOnly": true }));

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations() {
        let millis = |text: &str| RawDuration::parse(&json!(text)).ok().map(|d| d.0.as_millis());
        for (text, expected) in
            [("200ms", 200), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("7d", 604_800_000)]
        {
            assert_eq!(millis(text), Some(expected), "{text}");
        }
        for text in
            ["", "s", "5", "1.5s", "-1s", "5 parsecs", "99999999999999999999s", "18446744073709551615d", "36526d"]
        {
            assert_eq!(millis(text), None, "{text}");
        }
        assert!(RawDuration::read(&json!(200)).unwrap_err().contains("200ms"));
    }

    #[test]
    fn shares() {
        let share = |value: Json| RawShare::parse(&value).ok().map(|s| s.0);
        assert_eq!(share(json!("5%")), Some(0.05));
        assert_eq!(share(json!(0.05)), Some(0.05));
        assert_eq!(share(json!(1)), Some(1.0));
        assert_eq!(share(json!("100 %")), Some(1.0));
        for value in [json!(1.5), json!(-0.1), json!("101%"), json!("0.05"), json!("NaN%"), json!("%"), json!(true)] {
            assert_eq!(share(value.clone()), None, "{value}");
        }
    }

    #[test]
    fn sizes_addresses_decimals() {
        let size = |value: Json| RawSize::parse(&value).ok().map(|s| s.0);
        assert_eq!(size(json!("1MiB")), Some(1_048_576));
        assert_eq!(size(json!(17)), Some(17));
        assert_eq!(size(json!("17")), None);
        assert_eq!(size(json!("99999999999GiB")), None);
        let address = |text: &str| RawAddress::parse(&json!(text)).ok().map(|a| a.0.to_string());
        assert_eq!(address("localhost:9464").as_deref(), Some("127.0.0.1:9464"));
        assert_eq!(address("[::1]:80").as_deref(), Some("[::1]:80"));
        assert_eq!(address("9464"), None);
        let decimal = |value: Json| RawDecimal::parse(&value).ok().map(|d| d.0.to_string());
        assert_eq!(decimal(json!(0.1)).as_deref(), Some("0.1"));
        assert_eq!(decimal(json!(1e-7)).as_deref(), Some("0.0000001"));
        assert_eq!(decimal(json!(1e300)), None);
    }
}
