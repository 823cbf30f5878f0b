//! Scalars with a unit: durations, shares, sizes, addresses, decimals, and secrets.
//!
//! Each kind says once what it expects and how it parses. The structural check, serde and the JSON Schema all use that.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use rust_decimal::Decimal;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::SecretString;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value as Json;

use crate::model::record::{canonical_number, canonical_text};

/// The keyword under which a scalar's kind stands in the JSON Schema.
pub(super) const KIND: &str = "x-kind";

/// A scalar that is written in a notation of its own.
pub(super) trait Notation: Sized {
    /// Its name in the JSON Schema.
    const KIND: &'static str;
    /// What to write: completes "expected ...".
    const EXPECTED: &'static str;

    /// Reads it; the error completes "..., found x" and never holds the value.
    fn parse(value: &Json) -> Result<Self, String>;

    /// Its JSON types and pattern.
    fn schema() -> Schema;
}

/// What is wrong with `value` as a scalar of the kind called `kind`.
pub(super) fn check(kind: &str, value: &Json) -> Result<(), String> {
    fn of<T: Notation>(value: &Json) -> Result<(), String> {
        T::parse(value).map(drop)
    }
    match kind {
        RawDuration::KIND => of::<RawDuration>(value),
        RawExtent::KIND => of::<RawExtent>(value),
        RawShare::KIND => of::<RawShare>(value),
        RawSize::KIND => of::<RawSize>(value),
        RawAddress::KIND => of::<RawAddress>(value),
        RawDecimal::KIND => of::<RawDecimal>(value),
        RawScalar::KIND => of::<RawScalar>(value),
        _ => Ok(()),
    }
}

macro_rules! notation {
    ($name:ident) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&Json::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let mut schema = <Self as Notation>::schema();
                schema.insert(KIND.into(), Self::KIND.into());
                schema
            }
        }
    };
}

/// A length of time with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawDuration(pub Duration);

impl Notation for RawDuration {
    const KIND: &'static str = "duration";
    const EXPECTED: &'static str = "a duration with its unit, such as 200ms, 30s, 5m, 1h or 7d";

    fn parse(value: &Json) -> Result<Self, String> {
        let expected = || format!("expected {}", Self::EXPECTED);
        let text = value.as_str().ok_or_else(expected)?.trim();
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let number: u64 = number.parse().map_err(|_| expected())?;
        let millis = match unit.trim_start() {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(expected()),
        };
        // A century: longer waits are typing errors, and sums of times stay far from overflow.
        const MAX_MILLIS: u64 = 36_525 * 86_400_000;
        match number.checked_mul(millis) {
            Some(total) if total <= MAX_MILLIS => Ok(Self(Duration::from_millis(total))),
            _ => Err("expected a duration of at most 36525d".into()),
        }
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+ *(ms|s|m|h|d)$" })
    }
}

notation!(RawDuration);

/// How far a sliding window reaches: a number of records, or a time with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawExtent {
    /// So many records.
    Records(u64),
    /// So long.
    Time(Duration),
}

impl Notation for RawExtent {
    const KIND: &'static str = "extent";
    const EXPECTED: &'static str = "a number of records such as 10000, or a time with its unit such as 5m";

    fn parse(value: &Json) -> Result<Self, String> {
        let records = value.as_u64().map(Self::Records);
        let parsed = records.or_else(|| RawDuration::parse(value).ok().map(|d| Self::Time(d.0)));
        match parsed {
            Some(Self::Records(0)) => Err("expected 1 record or more".into()),
            Some(Self::Time(time)) if time.is_zero() => Err("expected a time longer than zero".into()),
            Some(extent) => Ok(extent),
            None => Err(format!("expected {}", Self::EXPECTED)),
        }
    }

    fn schema() -> Schema {
        json_schema!({ "type": ["integer", "string"], "minimum": 1, "pattern": "^[0-9]+ *(ms|s|m|h|d)$" })
    }
}

notation!(RawExtent);

/// A share between 0 and 1, or between 0% and 100%.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RawShare(pub f64);

impl Notation for RawShare {
    const KIND: &'static str = "share";
    const EXPECTED: &'static str = "a share between 0 and 1 such as 0.05, or a percentage such as 5%";

    fn parse(value: &Json) -> Result<Self, String> {
        let share = match value {
            Json::String(text) => {
                text.trim().strip_suffix('%').and_then(|t| t.trim().parse::<f64>().ok()).map(|percent| percent / 100.0)
            }
            other => other.as_f64(),
        };
        match share {
            Some(share) if (0.0..=1.0).contains(&share) => Ok(Self(share)),
            _ => Err(format!("expected {}", Self::EXPECTED)),
        }
    }

    fn schema() -> Schema {
        json_schema!({ "type": ["number", "string"], "minimum": 0, "maximum": 1, "pattern": "^[0-9.]+ *%$" })
    }
}

notation!(RawShare);

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawSize(pub u64);

impl Notation for RawSize {
    const KIND: &'static str = "size";
    const EXPECTED: &'static str = "a size such as 1MiB, 512KiB or 2GiB, or a number of bytes";

    fn parse(value: &Json) -> Result<Self, String> {
        let expected = || format!("expected {}", Self::EXPECTED);
        let Json::String(text) = value else {
            return value.as_u64().map(Self).ok_or_else(expected);
        };
        let text = text.trim();
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let number: u64 = number.parse().map_err(|_| expected())?;
        let unit: u64 = match unit.trim_start() {
            "B" => 1,
            "kB" => 1_000,
            "KiB" => 1 << 10,
            "MB" => 1_000_000,
            "MiB" => 1 << 20,
            "GB" => 1_000_000_000,
            "GiB" => 1 << 30,
            _ => return Err(expected()),
        };
        number.checked_mul(unit).map(Self).ok_or_else(expected)
    }

    fn schema() -> Schema {
        json_schema!({ "type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+ *(B|kB|KiB|MB|MiB|GB|GiB)$" })
    }
}

notation!(RawSize);

/// An address and a port to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawAddress(pub SocketAddr);

impl Notation for RawAddress {
    const KIND: &'static str = "address";
    const EXPECTED: &'static str = "an address and a port, such as 127.0.0.1:9464 or [::1]:9464";

    fn parse(value: &Json) -> Result<Self, String> {
        let text = value.as_str().unwrap_or_default().trim();
        let local = |port: &str| port.parse().ok().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
        let address = match text.strip_prefix("localhost:") {
            Some(port) => local(port),
            None => text.parse().ok(),
        };
        address.map(Self).ok_or_else(|| format!("expected {}", Self::EXPECTED))
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string" })
    }
}

notation!(RawAddress);

/// An exact decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub struct RawDecimal(pub Decimal);

impl Notation for RawDecimal {
    const KIND: &'static str = "decimal";
    const EXPECTED: &'static str = "a number with at most 28 digits";

    fn parse(value: &Json) -> Result<Self, String> {
        let text = match value {
            Json::Number(number) => number.to_string(),
            Json::String(text) => text.trim().to_owned(),
            _ => String::new(),
        };
        Decimal::from_str_exact(&text)
            .or_else(|_| Decimal::from_scientific(&text))
            .map(|decimal| Self(decimal.normalize()))
            .map_err(|_| format!("expected {}", Self::EXPECTED))
    }

    fn schema() -> Schema {
        json_schema!({ "type": "number" })
    }
}

notation!(RawDecimal);

/// A value of a record, as canonical text: 2, 2.0 and "2" are one value. Where it is compared with records, case and
/// characters that nobody sees make no difference either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawScalar(pub String);

impl Notation for RawScalar {
    const KIND: &'static str = "value";
    const EXPECTED: &'static str = "a value: text, a number, true or false";

    fn parse(value: &Json) -> Result<Self, String> {
        let expected = || format!("expected {}", Self::EXPECTED);
        match value {
            Json::String(text) => Ok(Self(canonical_text(text).into_owned())),
            Json::Bool(value) => Ok(Self(value.to_string())),
            Json::Number(number) => {
                let text = number.to_string();
                canonical_number(&text).map(|text| Self(text.into_owned())).ok_or_else(expected)
            }
            _ => Err(expected()),
        }
    }

    fn schema() -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

notation!(RawScalar);

/// A secret: taken in, never shown.
#[derive(Debug, Clone)]
pub struct RawSecret(pub SecretString);

impl<'de> Deserialize<'de> for RawSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

impl JsonSchema for RawSecret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RawSecret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "writeOnly": true })
    }
}

/// The value of a client property: text, number or true/false, taken in as text and never shown, since it may be a
/// password.
#[derive(Debug, Clone)]
pub struct RawProperty(pub SecretString);

impl<'de> Deserialize<'de> for RawProperty {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Json::deserialize(deserializer)? {
            Json::String(text) => text.into(),
            other => other.to_string().into(),
        }))
    }
}

impl JsonSchema for RawProperty {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RawProperty".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"], "writeOnly": true })
    }
}

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
        assert!(RawDuration::parse(&json!(200)).unwrap_err().contains("200ms"));
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
