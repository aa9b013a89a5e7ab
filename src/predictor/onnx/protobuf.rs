//! The wire format of protocol buffers, as far as reading and copying an ONNX file needs it: fields,
//! their raw bytes, and how to write one. What the fields mean is in [`super::graph`].

/// The bytes are not a protocol buffer, or not the one that was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not a whole protocol buffer with a graph in it")]
pub(super) struct Malformed;

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Field<'a> {
    pub(super) number: u64,
    pub(super) value: FieldValue<'a>,
    /// Tag and value as they stand in the message, to copy the field.
    pub(super) raw: &'a [u8],
}

/// A field's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum FieldValue<'a> {
    Varint(u64),
    /// Text, a message, or packed numbers.
    Bytes(&'a [u8]),
    /// Four or eight bytes: a real number.
    Fixed(&'a [u8]),
}

impl<'a> FieldValue<'a> {
    /// The bytes; none for a number.
    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            FieldValue::Bytes(bytes) => bytes,
            FieldValue::Varint(_) | FieldValue::Fixed(_) => &[],
        }
    }

    /// The bytes as text.
    pub(super) fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()).map_err(|_| Malformed)
    }

    /// The bytes of real numbers: of one, or of several that a writer packed into one field.
    pub(super) fn packed(self) -> Result<&'a [u8], Malformed> {
        match self {
            FieldValue::Fixed(bytes) | FieldValue::Bytes(bytes) => Ok(bytes),
            FieldValue::Varint(_) => Err(Malformed),
        }
    }

    /// The number or, where a writer packed several into one field, the numbers.
    pub(super) fn integers(self) -> Result<Vec<i64>, Malformed> {
        match self {
            FieldValue::Varint(number) => Ok(vec![number as i64]),
            FieldValue::Bytes(mut packed) => {
                let mut numbers = Vec::new();
                while !packed.is_empty() {
                    numbers.push(varint(&mut packed)? as i64);
                }
                Ok(numbers)
            }
            FieldValue::Fixed(_) => Err(Malformed),
        }
    }
}

/// The fields of a message, in the order in which they stand.
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = Result<Field<'_>, Malformed>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = field(&mut rest);
        if field.is_err() {
            rest = &[];
        }
        Some(field)
    })
}

fn field<'a>(rest: &mut &'a [u8]) -> Result<Field<'a>, Malformed> {
    let start = *rest;
    let tag = varint(rest)?;
    let value = match tag & 7 {
        0 => FieldValue::Varint(varint(rest)?),
        1 => take(rest, 8).map(FieldValue::Fixed)?,
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| Malformed)?;
            FieldValue::Bytes(take(rest, length)?)
        }
        5 => take(rest, 4).map(FieldValue::Fixed)?,
        _ => return Err(Malformed),
    };
    let number = tag >> 3;
    let raw = &start[..start.len() - rest.len()];
    if number == 0 { Err(Malformed) } else { Ok(Field { number, value, raw }) }
}

fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Malformed)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    let (taken, left) = rest.split_at_checked(length).ok_or(Malformed)?;
    *rest = left;
    Ok(taken)
}

/// Appends a field that holds bytes: text or a message.
pub(super) fn write_bytes(message: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    write_varint(message, number << 3 | 2);
    write_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

/// Appends a field that holds a number.
pub(super) fn write_integer(message: &mut Vec<u8>, number: u64, value: u64) {
    write_varint(message, number << 3);
    write_varint(message, value);
}

fn write_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut message = Vec::new();
        write_integer(&mut message, 1, 300);
        write_bytes(&mut message, 20, b"text");
        let read: Vec<Field> = fields(&message).collect::<Result<_, _>>().expect("well formed");
        assert_eq!((read[0].number, read[0].value), (1, FieldValue::Varint(300)));
        assert_eq!((read[1].number, read[1].value.text()), (20, Ok("text")));
        let copied: Vec<u8> = read.iter().flat_map(|field| field.raw.to_vec()).collect();
        assert_eq!(copied, message);
    }

    #[test]
    fn negative_and_packed_numbers_are_read() {
        assert_eq!(FieldValue::Varint(u64::MAX).integers(), Ok(vec![-1]));
        assert_eq!(FieldValue::Bytes(&[1, 0xac, 0x02]).integers(), Ok(vec![1, 300]));
    }

    #[test]
    fn cut_and_foreign_bytes_are_refused() {
        let mut message = Vec::new();
        write_bytes(&mut message, 7, &[0; 100]);
        for length in 1..message.len() {
            assert_eq!(fields(&message[..length]).last(), Some(Err(Malformed)), "{length}");
        }
        assert_eq!(fields(b"PAR1").last(), Some(Err(Malformed)));
        assert_eq!(fields(&[0xff; 12]).last(), Some(Err(Malformed)));
    }
}
