//! JSON has no word for NaN and infinities: they are written as `null`, and read back here.

use serde::{Deserialize, Deserializer};

/// A number, or NaN for `null`.
pub(super) fn or_nan<'de, D: Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(input)?.unwrap_or(f64::NAN))
}

/// A number, or infinity for `null`.
pub(super) fn or_infinity<'de, D: Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(input)?.unwrap_or(f64::INFINITY))
}

/// Numbers, NaN for each `null`.
pub(super) fn each_or_nan<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<f64>, D::Error> {
    let values = Vec::<Option<f64>>::deserialize(input)?;
    Ok(values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
}
