//! Reading `tokenizer.model`: the message `ModelProto` of SentencePiece's `sentencepiece_model.proto`, of which only a few
//! fields decide keys of a GGUF.

use std::collections::HashSet;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::base::quote::quote;

use super::TOKENIZER;
use super::vocabulary::TokenKind;

/// A model with its tokens.
#[derive(Debug)]
pub(super) struct SentencePieceModel<'f> {
    pub(super) pieces: Vec<SentencePieceToken<'f>>,
    pub(super) algorithm: u64,
    pub(super) normalizer: SpacesAndCharacters<'f>,
}

/// `trainer_spec.model_type` of the unigram model, which is also the default.
pub(super) const UNIGRAM: u64 = 1;
/// `trainer_spec.model_type` of BPE.
pub(super) const BPE: u64 = 2;

/// A token.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentencePieceToken<'f> {
    pub(super) text: &'f str,
    pub(super) score: f32,
    pub(super) kind: TokenKind,
}

/// The changes that are made to a text first.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpacesAndCharacters<'f> {
    /// The table by which characters are replaced; empty if there is none.
    pub(super) table: &'f [u8],
    pub(super) add_prefix: bool,
    pub(super) remove_extra_spaces: bool,
}

impl<'f> SentencePieceModel<'f> {
    /// Parses a file. The list of pieces stays charged.
    pub(super) fn parse(bytes: &'f [u8], budget: &Budget) -> Result<Self> {
        let mut model = Self {
            pieces: Vec::new(),
            algorithm: UNIGRAM,
            // the defaults of the message's fields
            normalizer: SpacesAndCharacters {
                table: &[],
                add_prefix: true,
                remove_extra_spaces: true,
            },
        };
        let mut message = Message::new(bytes, 0);
        while let Some((number, field)) = message.field()? {
            match (number, field) {
                (1, Field::Bytes(at, bytes)) => {
                    let piece = piece(Message::new(bytes, at))?;
                    budget.push(&mut model.pieces, piece, TOKENIZER)?;
                }
                // a message that occurs twice is merged
                (2, Field::Bytes(at, bytes)) => {
                    let mut trainer = Message::new(bytes, at);
                    while let Some((number, field)) = trainer.field()? {
                        if let (3, Field::Number(algorithm)) = (number, field) {
                            model.algorithm = algorithm;
                        }
                    }
                }
                (3, Field::Bytes(at, bytes)) => {
                    let mut spec = Message::new(bytes, at);
                    while let Some((number, field)) = spec.field()? {
                        match (number, field) {
                            (2, Field::Bytes(_, table)) => model.normalizer.table = table,
                            (3, Field::Number(flag)) => model.normalizer.add_prefix = flag != 0,
                            (4, Field::Number(flag)) => {
                                model.normalizer.remove_extra_spaces = flag != 0;
                            }
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        model.check(budget)?;
        Ok(model)
    }

    /// The conditions without which SentencePiece loads no model.
    fn check(&self, budget: &Budget) -> Result<()> {
        // a table is at most half empty, and has one byte of control per entry
        let table = 3 * size_of::<&str>() as u64 * self.pieces.len() as u64;
        let _table = budget.temporary(table, TOKENIZER)?;
        let mut texts = HashSet::with_capacity(self.pieces.len());
        let mut unknown = 0_u32;
        for (id, piece) in self.pieces.iter().enumerate() {
            if piece.text.is_empty() {
                return Err(Error::malformed(format!("the token {id} is empty")));
            }
            if !texts.insert(piece.text) {
                let what = format!("the token {} occurs twice", quote(piece.text));
                return Err(Error::malformed(what));
            }
            unknown += u32::from(piece.kind == TokenKind::Unknown);
        }
        match unknown {
            1 => Ok(()),
            _ => Err(Error::malformed(format!(
                "{unknown} tokens stand for unknown text, and one has to"
            ))),
        }
    }
}

fn piece(mut message: Message<'_>) -> Result<SentencePieceToken<'_>> {
    let start = message.start;
    let (mut text, mut score, mut kind) = (&[][..], 0.0, 1);
    while let Some((number, field)) = message.field()? {
        match (number, field) {
            (1, Field::Bytes(_, bytes)) => text = bytes,
            (2, Field::Fixed32(bytes)) => score = f32::from_le_bytes(bytes),
            (3, Field::Number(number)) => kind = number,
            _ => {}
        }
    }
    let text = std::str::from_utf8(text)
        .map_err(|_| Error::malformed("a token is not UTF-8").at(start))?;
    let kind = match kind {
        // llama.cpp's converter calls those that the user has defined normal
        1 | 4 => TokenKind::Normal,
        2 => TokenKind::Unknown,
        3 => TokenKind::Control,
        5 => TokenKind::Unused,
        6 => TokenKind::Byte,
        other => {
            let what = format!("the token {} is of the type {other}", quote(text));
            return Err(Error::malformed(what).at(start));
        }
    };
    Ok(SentencePieceToken { text, score, kind })
}

/// A message of protocol buffers: fields with numbers.
struct Message<'f> {
    rest: &'f [u8],
    /// The offset of the message in the file.
    start: u64,
    len: usize,
}

/// The value of a field by its wire type.
enum Field<'f> {
    Number(u64),
    Fixed64,
    Fixed32([u8; 4]),
    /// With the offset in the file.
    Bytes(u64, &'f [u8]),
}

impl<'f> Message<'f> {
    fn new(bytes: &'f [u8], start: u64) -> Self {
        Self {
            rest: bytes,
            start,
            len: bytes.len(),
        }
    }

    /// The offset in the file.
    fn at(&self) -> u64 {
        self.start + (self.len - self.rest.len()) as u64
    }

    /// The next field; `None` at the end.
    fn field(&mut self) -> Result<Option<(u64, Field<'f>)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let at = self.at();
        let tag = self.number()?;
        let field = match tag & 7 {
            0 => Field::Number(self.number()?),
            1 => {
                self.take(8)?;
                Field::Fixed64
            }
            2 => {
                let len = self.number()?;
                let at = self.at();
                Field::Bytes(at, self.take(len)?)
            }
            5 => {
                let bytes = self.take(4)?.try_into();
                Field::Fixed32(bytes.expect("four bytes were taken"))
            }
            // groups are not in use since long before SentencePiece
            wire => {
                let what =
                    format!("a field has the wire type {wire}: this is no SentencePiece model");
                return Err(Error::malformed(what).at(at));
            }
        };
        Ok(Some((tag >> 3, field)))
    }

    /// A number of 7 bits in each byte, the lowest first.
    fn number(&mut self) -> Result<u64> {
        let at = self.at();
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Error::malformed("a number has more than 64 bits").at(at))
    }

    fn take(&mut self, len: u64) -> Result<&'f [u8]> {
        let taken = usize::try_from(len)
            .ok()
            .and_then(|len| self.rest.split_at_checked(len));
        let Some((taken, rest)) = taken else {
            let left = self.rest.len();
            let what = format!("a field of {len} bytes, of which the message has {left}");
            return Err(Error::malformed(what).at(self.at()));
        };
        self.rest = rest;
        Ok(taken)
    }
}
