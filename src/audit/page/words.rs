//! Numbers and names as a reader sees them: English grouping, a true minus sign, units beside every figure.

/// Keeps a number and its unit on one line.
const JOINER: &str = "\u{202f}";
/// Characters of a name from the data that are shown, at most: tables hold the whole of it.
const NAME_CHARS: usize = 60;

/// A count: `1,234,567`.
pub(super) fn count(count: u64) -> String {
    grouped(&count.to_string())
}

/// A count with its noun: `1 row`, `2,000 rows`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// A share of 0 to 1: `12.3 %`. What is rounded away is said to be there.
pub(super) fn share(share: f64) -> String {
    let percent = 100.0 * share;
    let text = if percent != 0.0 && percent.abs() < 0.05 {
        "< 0.1".to_string()
    } else if (99.95..100.0).contains(&percent) {
        "> 99.9".to_string()
    } else {
        fixed(percent, 1)
    };
    format!("{text}{JOINER}%")
}

/// A share, or a dash.
pub(super) fn maybe_share(value: Option<f64>) -> String {
    value.map_or_else(dash, share)
}

/// A difference of shares: `+3.2 points`.
pub(super) fn points(difference: f64) -> String {
    format!("{}{JOINER}points", signed(100.0 * difference, 1))
}

/// A number with its sign, and so many decimals.
pub(super) fn signed(number: f64, decimals: usize) -> String {
    let text = fixed(number, decimals);
    let is_zero = text.chars().all(|c| matches!(c, '0' | '.' | '−'));
    if number > 0.0 && !is_zero { format!("+{text}") } else { text }
}

/// A number with so many decimals.
pub(super) fn fixed(number: f64, decimals: usize) -> String {
    if !number.is_finite() {
        return if number.is_nan() { dash() } else { "∞".to_string() };
    }
    let text = format!("{:.decimals$}", number.abs());
    let negative = number < 0.0 && text.chars().any(|c| ('1'..='9').contains(&c));
    format!("{}{}", if negative { "−" } else { "" }, grouped(&text))
}

/// A number in three digits that count: `0.0123`, `1.23`, `123`, `12,345`.
pub(super) fn number(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return fixed(number, 0);
    }
    let magnitude = number.abs().log10().floor();
    if !(-6.0..15.0).contains(&magnitude) {
        return format!("{number:.2e}").replace('-', "−");
    }
    let decimals = (2.0 - magnitude).clamp(0.0, 9.0) as usize;
    let text = fixed(number, decimals);
    if text.contains('.') { trimmed(&text) } else { text }
}

/// The same, or a dash.
pub(super) fn maybe_number(value: Option<f64>) -> String {
    value.map_or_else(dash, number)
}

/// What stands for a figure that there is not.
pub(super) fn dash() -> String {
    "–".to_string()
}

/// A p-value.
pub(super) fn p_value(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_string() } else { fixed(p, 3) }
}

/// A range: `1.2 to 3.4`.
pub(super) fn range(low: f64, high: f64, show: impl Fn(f64) -> String) -> String {
    format!("{} to {}", show(low), show(high))
}

/// A value from the data as a name; null and the empty text are told from the words for them.
pub(super) fn name(value: Option<&str>) -> String {
    match value {
        None => "(no value)".to_string(),
        Some("") => "(empty text)".to_string(),
        Some(text) => clipped(text, NAME_CHARS),
    }
}

/// So many characters of a text, without line breaks and other control characters. Wide characters count double.
pub(super) fn clipped(text: &str, most: usize) -> String {
    let width = |c: char| if c >= '\u{1100}' { 2 } else { 1 };
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut shown = String::new();
    let mut used = 0;
    for c in clean {
        if used + width(c) > most {
            while used + 1 > most {
                used -= shown.pop().map_or(used, width);
            }
            shown.push('…');
            return shown;
        }
        used += width(c);
        shown.push(c);
    }
    shown
}

/// Names as a sentence lists them: `a, b and c`.
pub(super) fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

fn grouped(digits: &str) -> String {
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

fn trimmed(text: &str) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        let shown = [0, 7, 999, 1_000, 12_345, 1_234_567].map(count);
        assert_eq!(shown, ["0", "7", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!(counted(1, "row"), "1 row");
        assert_eq!(counted(1_200, "row"), "1,200 rows");
    }

    #[test]
    fn shares_are_not_rounded_to_none_or_all() {
        let shown = [0.0, 0.0004, 0.0005, 0.1234, 0.9994, 0.9996, 1.0].map(share);
        let expected = ["0.0", "< 0.1", "0.1", "12.3", "99.9", "> 99.9", "100.0"];
        assert_eq!(shown, expected.map(|text| format!("{text}\u{202f}%")));
    }

    #[test]
    fn differences_have_a_sign_unless_they_are_nothing() {
        let shown = [0.0321, -0.0321, 0.0, 0.000_1, -0.000_1].map(points);
        let expected = ["+3.2", "−3.2", "0.0", "0.0", "0.0"];
        assert_eq!(shown, expected.map(|text| format!("{text}\u{202f}points")));
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        let given = [0.0, 1.0, 0.012_345, 1.2345, 123.456, 12_345.6, -2.5, 1e-9, f64::INFINITY];
        let shown = given.map(number);
        assert_eq!(shown, ["0", "1", "0.0123", "1.23", "123", "12,346", "−2.5", "1.00e−9", "∞"]);
        assert_eq!(number(f64::NAN), "–");
        assert_eq!(p_value(0.000_2), "< 0.001");
        assert_eq!(p_value(0.0456), "0.046");
    }

    #[test]
    fn names_are_cut_and_nulls_are_told_from_texts() {
        assert_eq!(name(None), "(no value)");
        assert_eq!(name(Some("")), "(empty text)");
        assert_eq!(name(Some("null")), "null");
        assert_eq!(clipped("abcdef", 6), "abcdef");
        assert_eq!(clipped("abcdefg", 6), "abcde…");
        assert_eq!(clipped("漢字漢字", 5), "漢字…");
        assert_eq!(clipped("a\nb", 6), "a b");
        assert_eq!(listed(&["a", "b", "c"].map(String::from)), "a, b and c");
    }
}
