//! Columns of text as tensors. ONNX Runtime takes texts one by one, each copied into memory of its own,
//! which costs more than many a model. But columns of categories have few distinct texts: only those are
//! handed over, and a model of a single operator, `Gather`, spreads them over the rows within the library.

use std::path::Path;

use hashbrown::HashMap;
use ort::session::Session;
use ort::value::{DynValue, Tensor, TensorRef};

use super::convert::Text;
use super::graph::gather_texts;
use super::runtime;

/// Below this a run of the small model costs more than it saves.
const FEWEST_ROWS: usize = 256;

/// Rows that a distinct text must have on average for the detour to pay.
const ROWS_PER_TEXT: usize = 4;

/// Makes tensors of texts.
#[derive(Debug)]
pub(super) struct TextTensors {
    session: Session,
}

impl TextTensors {
    /// Loads the small model.
    pub(super) fn open() -> Result<TextTensors, ort::Error> {
        let model = gather_texts("distinct", "codes", "texts");
        Ok(TextTensors { session: runtime::session(&model, Path::new("."), 1)? })
    }

    /// A tensor of these texts.
    ///
    /// # Errors
    /// Also when a text has a zero byte, which ONNX Runtime takes for its end.
    pub(super) fn tensor(
        &mut self,
        texts: &[&str],
        shape: Vec<usize>,
    ) -> Result<DynValue, ort::Error> {
        match Coded::new(texts) {
            Some(coded) => self.spread(&coded, shape),
            None => plain(texts, shape),
        }
    }

    fn spread(&mut self, coded: &Coded<'_>, shape: Vec<usize>) -> Result<DynValue, ort::Error> {
        let distinct = plain(&coded.distinct, vec![coded.distinct.len()])?;
        let codes = TensorRef::from_array_view((shape, coded.codes.as_slice()))?;
        let mut outputs =
            self.session.run(ort::inputs!["distinct" => distinct, "codes" => codes])?;
        outputs.remove("texts").ok_or_else(|| ort::Error::new("the texts are missing"))
    }
}

fn plain(texts: &[&str], shape: Vec<usize>) -> Result<DynValue, ort::Error> {
    let texts = Text::shared(texts);
    Ok(Tensor::from_string_array((shape, texts.as_slice()))?.into_dyn())
}

/// Texts by their position among the distinct ones.
#[derive(Debug, PartialEq)]
struct Coded<'t> {
    distinct: Vec<&'t str>,
    codes: Vec<i64>,
}

impl<'t> Coded<'t> {
    /// None where that does not pay.
    fn new(texts: &[&'t str]) -> Option<Coded<'t>> {
        let most = texts.len() / ROWS_PER_TEXT;
        let (mut known, mut distinct) = (HashMap::new(), Vec::new());
        let mut codes = Vec::with_capacity(texts.len());
        for text in texts.iter().filter(|_| texts.len() >= FEWEST_ROWS) {
            let code = *known.entry(*text).or_insert_with(|| {
                distinct.push(*text);
                distinct.len() as i64 - 1
            });
            codes.push(code);
            if distinct.len() > most {
                return None;
            }
        }
        (!codes.is_empty()).then_some(Coded { distinct, codes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_out_as_they_went_in_whichever_way_they_take() {
        let texts: Vec<String> = (0..1000).map(|row| format!("text {row}")).collect();
        let few = ["", "a", "pâté", "a text that is too long to be kept in place"];
        let few: Vec<&str> = few.into_iter().cycle().take(1000).collect();
        let many: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut spread = TextTensors::open().expect("the library is there");
        for texts in [&few[..], &few[..3], &many[..], &[]] {
            for shape in [vec![texts.len()], vec![texts.len(), 1]] {
                let tensor = spread.tensor(texts, shape.clone()).expect("a tensor");
                let (found_shape, found) = tensor.try_extract_strings().expect("texts");
                assert_eq!(found, texts);
                assert!(found_shape.iter().map(|length| *length as usize).eq(shape));
            }
        }
    }

    #[test]
    fn only_few_texts_on_many_rows_are_coded() {
        let few: Vec<&str> = ["b", "a"].into_iter().cycle().take(FEWEST_ROWS).collect();
        let coded = Coded::new(&few).expect("few texts");
        assert_eq!((coded.distinct, &coded.codes[..3]), (vec!["b", "a"], &[0, 1, 0][..]));
        assert_eq!(Coded::new(&few[1..]), None);
        let texts: Vec<String> = (0..FEWEST_ROWS).map(|row| row.to_string()).collect();
        assert_eq!(Coded::new(&texts.iter().map(String::as_str).collect::<Vec<_>>()), None);
    }

    #[test]
    fn a_zero_byte_is_refused() {
        let mut texts = vec!["a"; FEWEST_ROWS];
        texts[7] = "a\0b";
        let mut spread = TextTensors::open().expect("the library is there");
        assert!(spread.tensor(&texts, vec![texts.len()]).is_err());
    }
}
