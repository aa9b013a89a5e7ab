//! `${name}` in a job's text values, filled by `--set name=value`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::document::did_you_mean;
use crate::error::{Error, Fault, Result};

/// The values given on the command line, and which of them the job used.
#[derive(Debug, Default)]
pub struct Placeholders {
    values: BTreeMap<String, String>,
    used: RefCell<BTreeSet<String>>,
}

impl Placeholders {
    /// From `name=value` arguments.
    pub fn parse(arguments: &[String]) -> Result<Placeholders> {
        let mut values = BTreeMap::new();
        for argument in arguments {
            let (name, value) =
                argument.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
                    Error::spec(
                        "--set",
                        format!("`{argument}` has no value, expected `name=value`"),
                    )
                })?;
            values.insert(name.to_string(), value.to_string());
        }
        Ok(Placeholders { values, used: RefCell::default() })
    }

    /// Fills the placeholders of one text.
    pub fn fill(&self, text: &str) -> Result<String, Fault> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            if let Some(escaped) = rest[..start].strip_suffix('$') {
                filled.push_str(escaped);
                filled.push_str("${");
                rest = &rest[start + 2..];
                continue;
            }
            filled.push_str(&rest[..start]);
            let end = rest[start..].find('}').ok_or_else(|| {
                Fault::new("", "has a `${` without a `}`").hint("write `$${` for a literal `${`")
            })?;
            filled.push_str(self.value(&rest[start + 2..start + end])?);
            rest = &rest[start + end + 1..];
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn value(&self, name: &str) -> Result<&str, Fault> {
        let value = self.values.get(name).ok_or_else(|| {
            Fault::new("", format!("has the placeholder `${{{name}}}`, which has no value"))
                .hint(format!("pass `--set {name}=…`"))
        })?;
        self.used.borrow_mut().insert(name.to_string());
        Ok(value)
    }

    /// Values that no placeholder asked for: probably a typing error.
    pub fn unused(&self) -> Vec<Fault> {
        let used = self.used.borrow();
        let unused = self.values.keys().filter(|name| !used.contains(*name));
        unused
            .map(|name| {
                let fault = Fault::new("--set", format!("no `${{{name}}}` in the job file"));
                match did_you_mean(name, used.iter().map(String::as_str)) {
                    Some(hint) => fault.hint(hint),
                    None => fault,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placeholders() -> Placeholders {
        Placeholders::parse(&["date=2026-11-16".into(), "bank=north".into()]).expect("well formed")
    }

    #[test]
    fn placeholders_are_filled_wherever_they_stand() {
        let filled = placeholders().fill("in/${bank}/day=${date}/$${x}").expect("known names");
        assert_eq!(filled, "in/north/day=2026-11-16/${x}");
    }

    #[test]
    fn unknown_and_open_placeholders_are_refused() {
        assert!(placeholders().fill("${dat}").unwrap_err().problem.contains("${dat}"));
        assert!(placeholders().fill("${date").unwrap_err().problem.contains("without"));
    }

    #[test]
    fn values_that_nothing_asks_for_are_pointed_out() {
        let given = placeholders();
        given.fill("${date}").expect("known name");
        let unused = given.unused();
        assert_eq!(unused.len(), 1);
        assert!(unused[0].problem.contains("${bank}"));
    }
}
