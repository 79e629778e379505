//! Reading a log: its entries in order, whatever the bytes are, in memory that one entry bounds.
//!
//! A log that ends inside an entry is *torn*: its writer died, or its disk was full. That is an end and no error;
//! [`LogReader::torn`] tells of it. An entry whose bytes are damaged is an error that says where it is, and nothing
//! behind it is read. A damaged length that points past the end looks like a torn log; so that it hides no more than
//! one entry, a log counts as torn only if no whole entry stands in its last piece.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use crate::error::{Flaw, LogError};
use crate::format::{
    Entry, HEAD, HEADER_HEAD, Header, MAGIC, MAX_CHAIN, MAX_ENTRY, VERSION, fits, length_in,
};

/// A log that is being read: an iterator over its entries, which ends with the log or with its first error.
#[derive(Debug)]
pub struct LogReader<R: Read = File> {
    input: BufReader<R>,
    path: String,
    header: Header,
    /// Where the next entry begins.
    offset: u64,
    bytes: Vec<u8>,
    torn: Option<u64>,
    is_over: bool,
}

impl LogReader {
    /// Opens the log `path` and reads its header.
    ///
    /// # Errors
    /// There is no such log, it is none, or it has a version that this build does not know.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => LogReader::new(file, &name),
            Err(source) => Err(LogError::Open { path: name, source }),
        }
    }
}

impl<R: Read> LogReader<R> {
    /// Reads a log from anywhere; no buffer is needed around `input`. Errors call it `path`.
    ///
    /// # Errors
    /// As [`LogReader::open`].
    pub fn new(input: R, path: &str) -> Result<Self, LogError> {
        let (mut input, mut bytes, path) = (BufReader::new(input), Vec::new(), path.to_owned());
        let read = |source| LogError::Read { path: path.clone(), offset: 0, source };
        let cut = || LogError::CutHeader { path: path.clone() };
        let damaged = |what| LogError::Damaged { path: path.clone(), offset: 0, what };
        append(&mut input, HEADER_HEAD, &mut bytes).map_err(read)?;
        let (magic, version) = bytes.split_at(bytes.len().min(MAGIC.len()));
        if !MAGIC.starts_with(magic) {
            return Err(LogError::NoLog { path });
        }
        let version = version.first_chunk().ok_or_else(cut)?;
        if *version != VERSION.to_le_bytes() {
            return Err(LogError::Version { found: u16::from_le_bytes(*version), path });
        }
        if bytes.len() < HEADER_HEAD {
            return Err(cut());
        }
        let length = length_in(&bytes, HEADER_HEAD);
        if length > MAX_CHAIN {
            return Err(damaged(Flaw::Length));
        }
        if append(&mut input, length, &mut bytes).map_err(read)? < length {
            return Err(cut());
        }
        if !fits(&bytes, HEADER_HEAD) {
            return Err(damaged(Flaw::Checksum));
        }
        let header = Header::decode(&bytes[HEADER_HEAD..]).ok_or_else(|| damaged(Flaw::Contents))?;
        let offset = bytes.len() as u64;
        Ok(LogReader { input, path, header, offset, bytes, torn: None, is_over: false })
    }

    /// What the log says of its chain.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Where the next entry begins, or where reading has ended: the bytes in front of it are whole entries.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Where the entry begins that the log ends in; `None` where it ends with a whole one, or was not read so far.
    pub fn torn(&self) -> Option<u64> {
        self.torn
    }

    fn entry(&mut self) -> Result<Option<Entry>, LogError> {
        self.bytes.clear();
        match self.append(HEAD)? {
            0 => return Ok(None),
            HEAD => {}
            _ => return Ok(self.tear()),
        }
        let length = length_in(&self.bytes, HEAD);
        if !(1..=MAX_ENTRY).contains(&length) {
            return Err(self.damaged(Flaw::Length));
        }
        if self.append(length)? < length {
            return if hides_entry(&self.bytes) { Err(self.damaged(Flaw::Length)) } else { Ok(self.tear()) };
        }
        if !fits(&self.bytes, HEAD) {
            return Err(self.damaged(Flaw::Checksum));
        }
        let entry = Entry::decode(&self.bytes[HEAD..]).map_err(|flaw| self.damaged(flaw))?;
        self.offset += self.bytes.len() as u64;
        Ok(Some(entry))
    }

    /// Reads `count` bytes more, or as many as there are.
    fn append(&mut self, count: usize) -> Result<usize, LogError> {
        let read = append(&mut self.input, count, &mut self.bytes);
        read.map_err(|source| LogError::Read { path: self.path.clone(), offset: self.offset, source })
    }

    fn tear(&mut self) -> Option<Entry> {
        self.torn = Some(self.offset);
        None
    }

    fn damaged(&self, what: Flaw) -> LogError {
        LogError::Damaged { path: self.path.clone(), offset: self.offset, what }
    }
}

impl<R: Read> Iterator for LogReader<R> {
    type Item = Result<Entry, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let entry = self.entry().transpose();
        self.is_over = !matches!(entry, Some(Ok(_)));
        entry
    }
}

/// Appends up to `count` bytes of `input`, fewer only at its end.
fn append(input: &mut impl Read, count: usize, bytes: &mut Vec<u8>) -> io::Result<usize> {
    input.take(count as u64).read_to_end(bytes)
}

/// Whether a whole entry stands behind the first byte of a log's last piece.
fn hides_entry(piece: &[u8]) -> bool {
    (1..piece.len().saturating_sub(HEAD)).any(|at| {
        let rest = &piece[at..];
        let end = HEAD + length_in(rest, HEAD);
        rest.get(..end).is_some_and(|entry| fits(entry, HEAD) && Entry::decode(&entry[HEAD..]).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{header, small};
    use pannier_runtime::crc::crc32c;
    use proptest::prelude::*;

    /// The entries, where the log is torn, and the error.
    fn read(bytes: &[u8]) -> (Vec<Entry>, Option<u64>, Option<LogError>) {
        let mut reader = match LogReader::new(bytes, "run.log") {
            Ok(reader) => reader,
            Err(error) => return (Vec::new(), None, Some(error)),
        };
        let (mut entries, mut error) = (Vec::new(), None);
        for entry in reader.by_ref() {
            match entry {
                Ok(entry) => entries.push(entry),
                Err(first) => error = Some(first),
            }
        }
        assert!(reader.next().is_none(), "the end is the end");
        (entries, reader.torn(), error)
    }

    fn header_bytes() -> usize {
        let mut bytes = Vec::new();
        header().encode(&mut bytes);
        bytes.len()
    }

    #[test]
    fn every_truncation_reads_a_prefix() {
        // Goal: a torn log loses its last entry and nothing else. Method: every length of a small log.
        let (bytes, _) = small(8);
        let (whole, torn, error) = read(&bytes);
        assert!((whole.len(), torn) == (26, None) && error.is_none());
        let mut before = 0;
        for end in 0..bytes.len() {
            let (entries, torn, error) = read(&bytes[..end]);
            if end < header_bytes() {
                assert!(matches!(error, Some(LogError::CutHeader { .. })), "{end}: {error:?}");
                continue;
            }
            assert!(error.is_none() && whole.starts_with(&entries), "{end}: {error:?}");
            let grown = entries.len() - before;
            assert!(grown <= 1, "{end}: entries appear one by one");
            assert_eq!(torn.is_none(), grown == 1 || end == header_bytes(), "{end}: {torn:?}");
            before = entries.len();
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        // Goal: nothing wrong is ever read. Method: each bit of a small log; what is read must be a prefix, and short.
        let (mut bytes, _) = small(3);
        let (whole, ..) = read(&bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (entries, torn, error) = read(&bytes);
            assert!(whole.starts_with(&entries) && entries.len() < whole.len(), "bit {bit}");
            let only_last = torn.is_some() && entries.len() + 1 == whole.len();
            assert!(error.is_some() || only_last, "bit {bit} hid {} entries", whole.len() - entries.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_damaged_entry_is_told_with_its_place() {
        // Goal: the error leads to the damage. Method: damage the second entry's contents, length, kind and record.
        let (bytes, _) = small(3);
        let second = header_bytes() + HEAD + 2;
        let damage = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[second + at] = byte;
            let (entries, _, error) = read(&bytes);
            assert_eq!(entries.len(), 1);
            error.expect("damaged").to_string()
        };
        let place = format!("the log run.log is damaged at byte {second}: ");
        assert_eq!(damage(HEAD + 1, 9), format!("{place}its checksum does not fit"));
        assert_eq!(damage(3, 9), format!("{place}its length cannot be"));
        assert_eq!(damage(1, 9), format!("{place}its length cannot be")); // past the end, with entries behind it
        for (contents, words) in [(&[9, 1][..], "entries of kind 9 are not known"), (&[1, 64], "no sense")] {
            let mut bytes = bytes[..second].to_vec();
            bytes.extend((contents.len() as u32).to_le_bytes());
            let crc = crc32c(&[&bytes[second..], contents].concat());
            bytes.extend(crc.to_le_bytes());
            bytes.extend(contents);
            let error = read(&bytes).2.expect("damaged").to_string();
            assert!(error.starts_with(&place) && error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_is_no_log_is_refused_by_name() {
        // Goal: a sentence for each wrong file. Method: nothing, other files, a later version, a missing file.
        let (mut bytes, _) = small(1);
        let error = |bytes: &[u8]| read(bytes).2.expect("refused").to_string();
        assert_eq!(error(b""), "the log run.log ends inside its header: nothing was logged");
        assert_eq!(error(b"PNG"), "run.log is no log: it does not begin with PNRLOG");
        assert_eq!(error(&[0; 100]), "run.log is no log: it does not begin with PNRLOG");
        bytes[6] = 2;
        let version = "the log run.log has format version 2, and this build reads version 1 only";
        assert_eq!(error(&bytes), version);
        let missing = LogReader::open(Path::new("no/such.log")).expect_err("missing").to_string();
        assert!(missing.starts_with("cannot open the log no/such.log: "), "{missing}");
        let folder = tempfile::tempdir().expect("a folder");
        assert!(LogReader::open(folder.path()).is_err());
    }

    #[test]
    fn lengths_from_the_file_claim_no_memory() {
        // Goal: memory is bounded by what is there. Method: the longest lengths that are allowed, with nothing behind.
        let (bytes, _) = small(1);
        let start = header_bytes();
        let mut entry = bytes[..start].to_vec();
        entry.extend((MAX_ENTRY as u32).to_le_bytes());
        entry.extend([0; 4]);
        let mut reader = LogReader::new(&entry[..], "run.log").expect("a header");
        assert!(reader.next().is_none() && reader.torn() == Some(start as u64));
        assert!(reader.bytes.capacity() < 4_096, "{}", reader.bytes.capacity());
        entry[start..start + 4].copy_from_slice(&(MAX_ENTRY as u32 + 1).to_le_bytes());
        assert!(matches!(read(&entry).2, Some(LogError::Damaged { what: Flaw::Length, .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_panic(tail in prop::collection::vec(any::<u8>(), 0..400), keep in 0usize..400) {
            // Goal: no bytes make the reader panic or run on. Method: random bytes, alone and behind a real beginning.
            read(&tail);
            let (bytes, _) = small(3);
            let (whole, ..) = read(&bytes);
            let start = [&bytes[..keep.min(bytes.len())], &tail].concat();
            let (entries, ..) = read(&start);
            let kept = entries.iter().zip(&whole).take_while(|(a, b)| a == b).count();
            prop_assert!(kept == entries.len().min(whole.len()));
        }
    }
}
