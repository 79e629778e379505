//! The bytes of a capture, gunzipped where needed, through one growing window.

use std::io::{self, Cursor, Read};

use flate2::read::MultiGzDecoder;

/// The first two bytes of a gzip member.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The window's first size; it grows only for a longer record.
const WINDOW: usize = 256 << 10;

/// A source of bytes and the part of it that is read but not yet consumed.
pub(super) struct Input {
    source: Box<dyn Read + Send>,
    gzip: bool,
    window: Vec<u8>,
    start: usize,
    end: usize,
    /// How many bytes were consumed since the beginning.
    offset: u64,
    ended: bool,
    gzip_cut: bool,
}

impl Input {
    /// Looks at the first two bytes of `raw` and puts a decompressor in between if they are those of gzip.
    pub(super) fn new(mut raw: Box<dyn Read + Send>) -> io::Result<Self> {
        let mut magic = [0; 2];
        let mut have = 0;
        while have < magic.len() {
            match raw.read(&mut magic[have..]) {
                Ok(0) => break,
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let gzip = have == magic.len() && magic == GZIP_MAGIC;
        let whole = Cursor::new(magic).take(have as u64).chain(raw);
        let source: Box<dyn Read + Send> =
            if gzip { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) };
        let window = vec![0; WINDOW];
        Ok(Self { source, gzip, window, start: 0, end: 0, offset: 0, ended: false, gzip_cut: false })
    }

    /// What is read and not consumed.
    pub(super) fn data(&self) -> &[u8] {
        &self.window[self.start..self.end]
    }

    /// Where [`Input::data`] begins, counted from the first byte of the uncompressed file.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The gzip stream ended before its own end.
    pub(super) const fn gzip_cut(&self) -> bool {
        self.gzip_cut
    }

    /// The source is compressed, so an error while reading may be damage of the file.
    pub(super) const fn is_gzip(&self) -> bool {
        self.gzip
    }

    /// Moves on by `count` bytes of [`Input::data`].
    pub(super) fn consume(&mut self, count: usize) {
        let count = count.min(self.end - self.start);
        self.start += count;
        self.offset += count as u64;
    }

    /// Reads until [`Input::data`] is at least `total` bytes long; false if the source ends before.
    pub(super) fn fill(&mut self, total: usize) -> io::Result<bool> {
        if self.start > 0 {
            self.window.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.end < total {
            if self.ended {
                return Ok(false);
            }
            if self.end == self.window.len() {
                // Double, never more: a length that lies costs no more memory than the file has bytes.
                self.window.resize(self.window.len() * 2, 0);
            }
            match self.source.read(&mut self.window[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.gzip && error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.ended = true;
                    self.gzip_cut = true;
                }
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
            }
        }
        Ok(true)
    }
}
