//! Values as they are written into TOML files.

/// 2^63, the first number that is no integer of TOML.
const INTEGER_LIMIT: f64 = (1u64 << 63) as f64;

/// A text in quotes.
pub fn toml_text(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}

/// Whole numbers without a fraction, as far as TOML has them: beyond 64 bits they are floats.
pub fn toml_number(number: f64) -> String {
    if number.abs() >= INTEGER_LIMIT {
        return format!("{number:e}");
    }
    toml::Value::Float(number).to_string().trim_end_matches(".0").to_string()
}
