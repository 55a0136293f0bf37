//! Reads opcodes and their arguments from a cursor.
//!
//! A pickle is read in thousands of steps of one or two bytes. For bytes in memory (a mapped file, an inflated member),
//! the reader therefore keeps the slice that the cursor has already checked, and calls the cursor again only when the
//! slice is used up. For other sources the slice stays empty, and each step goes through the cursor.

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::read::source::cursor::Cursor;

const ARGUMENT: &str = "an opcode's argument";

pub(super) struct OpcodeReader<'c, 's> {
    cursor: &'c mut Cursor<'s>,
    /// Bytes from the current position on. The cursor has returned them but its own position is before them.
    buffered: &'s [u8],
    /// Position of the first byte after `buffered`.
    end: u64,
}

impl<'c, 's> OpcodeReader<'c, 's> {
    pub(super) fn new(cursor: &'c mut Cursor<'s>) -> Self {
        let end = cursor.pos();
        Self {
            cursor,
            buffered: &[],
            end,
        }
    }

    pub(super) fn budget(&self) -> &'s Budget {
        self.cursor.budget()
    }

    #[inline]
    pub(super) fn pos(&self) -> u64 {
        self.end - self.buffered.len() as u64
    }

    pub(super) fn remaining(&mut self) -> u64 {
        self.sync_cursor().remaining()
    }

    /// Moves the cursor to the current position and returns it. Drops the buffered slice.
    pub(super) fn sync_cursor(&mut self) -> &mut Cursor<'s> {
        let pos = self.pos();
        (self.buffered, self.end) = (&[], pos);
        self.cursor.seek(pos);
        self.cursor
    }

    #[inline]
    pub(super) fn opcode(&mut self) -> Result<u8> {
        match self.buffered.split_first() {
            Some((&first, rest)) => {
                self.buffered = rest;
                Ok(first)
            }
            None => self.refill("the next opcode of the pickle"),
        }
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        if let Some((&first, rest)) = self.buffered.split_first_chunk() {
            self.buffered = rest;
            return Ok(first);
        }
        let bytes = self.sync_cursor().array(ARGUMENT)?;
        self.end = self.cursor.pos();
        Ok(bytes)
    }

    /// Reads `n` bytes, a number that the pickle controls: the cursor compares it with the length of the source first.
    #[inline]
    pub(super) fn take(&mut self, n: u64, what: &str) -> Result<&[u8]> {
        if let Some((first, rest)) = usize::try_from(n)
            .ok()
            .and_then(|n| self.buffered.split_at_checked(n))
        {
            self.buffered = rest;
            return Ok(first);
        }
        self.sync_cursor();
        let bytes = self.cursor.take_long(n, what)?;
        // nothing is buffered here: the next opcode does it
        self.end += n;
        Ok(bytes)
    }

    /// Reads one byte through the cursor, and buffers what follows it in memory.
    #[cold]
    fn refill(&mut self, what: &str) -> Result<u8> {
        let cursor = self.sync_cursor();
        // the window bounds the slice, because the cursor has checked its bytes against the end of the source
        let window = cursor.peek(1, what)?.len();
        let byte = cursor.u8(what)?;
        let pos = cursor.pos();
        self.end = pos;
        // only for bytes in memory, whose slice outlives the cursor's window
        let rest = self.cursor.in_memory().zip(usize::try_from(pos).ok());
        if let Some(buffered) = rest.and_then(|(map, from)| map.get(from..from + window - 1)) {
            (self.buffered, self.end) = (buffered, pos + buffered.len() as u64);
        }
        Ok(byte)
    }
}
