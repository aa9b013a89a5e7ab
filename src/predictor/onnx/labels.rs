//! The model's labels as positions in its list of classes.

use hashbrown::HashMap;
use ort::value::{DynValue, Outlet, TensorElementType};

use super::inputs::shape_of;

/// Which class a label is. Labels may be numbers, texts or booleans; classes are texts.
#[derive(Debug)]
pub(super) enum Labels {
    /// Number and class, ascending.
    Integers(Vec<(i64, u32)>),
    Texts(HashMap<String, u32>),
    /// The classes of false and true.
    Booleans([u32; 2]),
}

impl Labels {
    /// Whether an output may hold the label of each row.
    pub(super) fn may_be_in(outlet: &Outlet) -> bool {
        use TensorElementType::{Bool, Int32, Int64, String};
        let single = matches!(shape_of(outlet), [] | [_] | [_, -1 | 1]);
        let element = outlet.dtype().tensor_type();
        single && matches!(element, Some(Bool | Int32 | Int64 | String))
    }

    /// The labels of an output, given all classes.
    ///
    /// # Errors
    /// The first class that cannot be a label of that output.
    pub(super) fn new(outlet: &Outlet, classes: &[String]) -> Result<Labels, String> {
        let coded = || classes.iter().zip(0..);
        match outlet.dtype().tensor_type() {
            Some(TensorElementType::String) => {
                Ok(Labels::Texts(coded().map(|(class, code)| (class.clone(), code)).collect()))
            }
            Some(TensorElementType::Bool) => {
                let mut codes = [None; 2];
                for (class, code) in coded() {
                    let value = boolean(class).ok_or_else(|| class.clone())?;
                    codes[usize::from(value)] = Some(code);
                }
                // A class that is not listed cannot be asked for, and is caught when it appears.
                Ok(Labels::Booleans(codes.map(|code| code.unwrap_or(u32::MAX))))
            }
            _ => {
                let numbers = coded().map(|(class, code)| {
                    class.parse().map(|number: i64| (number, code)).map_err(|_| class.clone())
                });
                let mut numbers = numbers.collect::<Result<Vec<_>, _>>()?;
                numbers.sort_unstable();
                Ok(Labels::Integers(numbers))
            }
        }
    }

    /// The classes of all labels of an output, or the label that is none of them.
    pub(super) fn read(&self, value: &DynValue) -> Result<Result<Vec<u32>, String>, ort::Error> {
        Ok(match (self, value.dtype().tensor_type()) {
            (Labels::Texts(codes), _) => {
                let (_, labels) = value.try_extract_strings()?;
                let code = |label: String| codes.get(&label).copied().ok_or(label);
                labels.into_iter().map(code).collect()
            }
            (Labels::Booleans(codes), _) => {
                let (_, labels) = value.try_extract_tensor::<bool>()?;
                let known =
                    |label: &bool| Some(codes[usize::from(*label)]).filter(|c| *c != u32::MAX);
                labels.iter().map(|label| known(label).ok_or_else(|| label.to_string())).collect()
            }
            (Labels::Integers(codes), Some(TensorElementType::Int32)) => {
                let (_, labels) = value.try_extract_tensor::<i32>()?;
                labels.iter().map(|label| integer(codes, i64::from(*label))).collect()
            }
            (Labels::Integers(codes), _) => {
                let (_, labels) = value.try_extract_tensor::<i64>()?;
                labels.iter().map(|label| integer(codes, *label)).collect()
            }
        })
    }
}

impl Labels {
    /// The class of a whole number.
    pub(super) fn of_integer(&self, label: i64) -> Result<u32, String> {
        match self {
            Labels::Integers(codes) => integer(codes, label),
            _ => Err(label.to_string()),
        }
    }

    /// The class of a text.
    pub(super) fn of_text(&self, label: &str) -> Result<u32, String> {
        match self {
            Labels::Texts(codes) => codes.get(label).copied().ok_or_else(|| label.to_string()),
            _ => Err(label.to_string()),
        }
    }

    /// The class of a flag.
    pub(super) fn of_flag(&self, label: bool) -> Result<u32, String> {
        match self {
            Labels::Booleans(codes) if codes[usize::from(label)] != u32::MAX => {
                Ok(codes[usize::from(label)])
            }
            _ => Err(label.to_string()),
        }
    }
}

fn integer(codes: &[(i64, u32)], label: i64) -> Result<u32, String> {
    let found = codes.binary_search_by_key(&label, |(number, _)| *number);
    found.map(|index| codes[index].1).map_err(|_| label.to_string())
}

fn boolean(class: &str) -> Option<bool> {
    match class.to_ascii_lowercase().as_str() {
        "false" | "0" => Some(false),
        "true" | "1" => Some(true),
        _ => None,
    }
}
