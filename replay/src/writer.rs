//! Writing a log: recorders of all nodes of a chain, in one file.
//!
//! A recorder never fails and never waits for a disk longer than one write takes: the first error ends the log, is
//! kept, and is told by [`LogWriter::finish`]. The file then holds what came before it.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pannier_runtime::Packet;
use pannier_runtime::clock::Nanos;
use pannier_runtime::piggyback::Record;
use pannier_runtime::ring::{Origin, Recorder};

use crate::error::LogError;
use crate::format::{Header, put_committed, put_released, put_started};

const BUFFER: usize = 256 << 10;

/// How much is in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Nodes that were recorded, replacements included.
    pub started: u64,
    /// Committed records.
    pub committed: u64,
    /// Released frames.
    pub released: u64,
    /// Bytes, the header included.
    pub bytes: u64,
}

/// A log that is being written.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("run.log");
/// use pannier_replay::{Header, LogReader, LogWriter};
/// use pannier_runtime::ring::Plan;
///
/// let log = LogWriter::create(&path, &Header::new(&Plan::new(1, 0)?, ["monitor"]))?;
/// let recorder = log.recorder(0); // for `Node::set_recorder`; `log.recorders()` is for `Chain::record`
/// assert_eq!(log.finish()?.started, 1);
/// assert_eq!(LogReader::open(&path)?.count(), 1);
/// # drop(recorder);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LogWriter {
    log: Shared,
    path: String,
}

impl LogWriter {
    /// Creates the log `path` of the chain that `header` describes. A file that is there is overwritten.
    ///
    /// # Errors
    /// The file cannot be created or written, or the header says what no log can say.
    pub fn create(path: &Path, header: &Header) -> Result<Self, LogError> {
        let name = path.display().to_string();
        if let Some(what) = header.flaw() {
            return Err(LogError::Unspeakable { path: name, what });
        }
        match File::create(path) {
            Ok(file) => Self::start(Box::new(file), name, header),
            Err(source) => Err(LogError::Create { path: name, source }),
        }
    }

    fn start(out: Box<dyn Write + Send>, path: String, header: &Header) -> Result<Self, LogError> {
        let mut log = Log {
            out: Some(BufWriter::with_capacity(BUFFER, out)),
            entry: Vec::new(),
            counts: LogCounts::default(),
            error: None,
        };
        log.append(|bytes| header.encode(bytes), |_| {});
        log.flush(); // a full disk shows at once, and a log without entries is one already
        match log.error.take() {
            Some(source) => Err(LogError::Write { path, source }),
            None => Ok(LogWriter { log: Shared(Arc::new(Mutex::new(log))), path }),
        }
    }

    /// A recorder for `node`, which starts now. Recorders of all nodes may be used at the same time, each told what
    /// happens in its node's order.
    pub fn recorder(&self, node: usize) -> Box<dyn Recorder> {
        self.log.recorder(node)
    }

    /// Makes recorders by node, as long as somebody wants them: what a chain that is to be recorded asks for.
    pub fn recorders(&self) -> impl Fn(usize) -> Box<dyn Recorder> + Send + use<> {
        let log = self.log.clone();
        move |node| log.recorder(node)
    }

    /// Writes what is still held and says how much is in the log. What recorders hear after it is not logged.
    ///
    /// # Errors
    /// The first error since the beginning: what happened from then on is not in the log.
    pub fn finish(self) -> Result<LogCounts, LogError> {
        let mut log = self.log.lock();
        log.flush();
        log.out = None;
        match log.error.take() {
            Some(source) => Err(LogError::Write { path: self.path, source }),
            None => Ok(log.counts),
        }
    }
}

/// The log as all recorders have it.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Log>>);

impl Shared {
    /// A thread that died while it held the lock has left a log that ends early at worst.
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recorder(&self, node: usize) -> Box<dyn Recorder> {
        self.lock().append(|out| put_started(node, out), |counts| counts.started += 1);
        Box::new(LogRecorder { log: self.clone() })
    }
}

/// The recorder of one node.
struct LogRecorder {
    log: Shared,
}

impl Recorder for LogRecorder {
    fn committed(&mut self, by: Origin, time: Nanos, record: &Record) {
        let put = |out: &mut Vec<u8>| put_committed(by, time, record, out);
        self.log.lock().append(put, |counts| counts.committed += 1);
    }

    fn released(&mut self, by: Origin, packet: &Packet) {
        self.log.lock().append(|out| put_released(by, packet, out), |counts| counts.released += 1);
    }
}

struct Log {
    /// `None` after the end, and after an error.
    out: Option<BufWriter<Box<dyn Write + Send>>>,
    /// The entry that is being put together.
    entry: Vec<u8>,
    counts: LogCounts,
    error: Option<io::Error>,
}

impl Log {
    fn append(&mut self, put: impl FnOnce(&mut Vec<u8>), count: impl FnOnce(&mut LogCounts)) {
        let Some(out) = &mut self.out else { return };
        self.entry.clear();
        put(&mut self.entry);
        match out.write_all(&self.entry) {
            Ok(()) => {
                count(&mut self.counts);
                self.counts.bytes += self.entry.len() as u64;
            }
            Err(error) => self.fail(error),
        }
    }

    fn flush(&mut self) {
        if let Some(Err(error)) = self.out.as_mut().map(Write::flush) {
            self.fail(error);
        }
    }

    /// Ends the log. What the buffer still holds is given up: a later success must not hide the error.
    fn fail(&mut self, error: io::Error) {
        drop(self.out.take().map(BufWriter::into_parts));
        self.error = Some(error);
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("counts", &self.counts)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::LogReader;
    use crate::sample::{Head, header, origin, packet};

    /// Takes so many bytes, then fails once, then takes everything.
    struct Moody {
        room: usize,
        failed: bool,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Moody {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 && !self.failed {
                self.failed = true;
                return Err(io::Error::other("the disk is moody"));
            }
            let count = if self.failed { bytes.len() } else { bytes.len().min(self.room) };
            self.room -= count.min(self.room);
            self.taken.lock().expect("one thread").extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn counts_are_those_of_the_file() {
        // Goal: what finish says is in the log is in it. Method: some entries of two nodes, and a read of the file.
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let log = LogWriter::create(&path, &header()).expect("a log");
        let recorders = log.recorders();
        let [mut first, mut second] = [recorders(0), recorders(1)];
        let mut head = Head::new(0);
        for number in 0..10 {
            first.committed(origin(0), number, &head.put(3, number));
            second.released(origin(1), &packet(number));
        }
        let counts = log.finish().expect("written");
        let bytes = std::fs::metadata(&path).expect("there").len();
        assert_eq!(counts, LogCounts { started: 2, committed: 10, released: 10, bytes });
        first.committed(origin(0), 11, &head.put(3, 11));
        drop((first, recorders(0)));
        let reader = LogReader::open(&path).expect("a log");
        assert_eq!(reader.header(), &header());
        assert_eq!(reader.filter(Result::is_ok).count(), 22);
    }

    #[test]
    fn threads_may_record_at_the_same_time() {
        // Goal: entries never mix. Method: four threads that tell much, and a read that finds each entry whole.
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let log = LogWriter::create(&path, &header()).expect("a log");
        std::thread::scope(|scope| {
            for node in 0..4 {
                let mut recorder = log.recorder(node);
                scope.spawn(move || {
                    (0..500).for_each(|number| recorder.released(origin(node), &packet(number)));
                });
            }
        });
        assert_eq!(log.finish().expect("written").released, 2_000);
        let mut reader = LogReader::open(&path).expect("a log");
        assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 2_004);
        assert_eq!(reader.torn(), None);
    }

    #[test]
    fn the_first_error_ends_the_log_and_is_told() {
        // Goal: a log with a hole is never written, and no error is lost. Method: a sink that fails once, anywhere.
        for room in (0..2_000).step_by(37) {
            let taken = Arc::new(Mutex::new(Vec::new()));
            let sink = Moody { room, failed: false, taken: Arc::clone(&taken) };
            let error = match LogWriter::start(Box::new(sink), "run.log".to_owned(), &header()) {
                Err(error) => error,
                Ok(log) => {
                    let mut recorder = log.recorder(1);
                    for number in 0..20_000 {
                        recorder.released(origin(1), &packet(number));
                    }
                    log.finish().expect_err("the sink failed")
                }
            };
            let sentence = error.to_string();
            assert!(sentence.starts_with("cannot write the log run.log: the disk is moody"), "{sentence}");
            assert_eq!(taken.lock().expect("one thread").len(), room, "written behind the hole");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_told_with_the_path() {
        // Goal: a full disk is a sentence. Method: the device that is always full.
        let error = LogWriter::create(Path::new("/dev/full"), &header()).expect_err("it is full");
        let sentence = error.to_string();
        assert!(sentence.contains("/dev/full") && sentence.contains("No space left"), "{sentence}");
    }

    #[test]
    fn what_cannot_be_created_is_told_with_the_path() {
        // Goal: each failure before the first entry is a sentence. Method: no folder, no stage, too many partitions.
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("none").join("log");
        let error = LogWriter::create(&path, &header()).expect_err("no folder");
        assert!(error.to_string().starts_with("cannot create the log") && error.to_string().contains("none"));
        let path = folder.path().join("log");
        let without = Header { stages: Vec::new(), ..header() };
        let mut many = header();
        many.layout.partitions = 65;
        for (header, words) in [(without, "1 to 64 stages"), (many, "1 to 64 partitions")] {
            let error = LogWriter::create(&path, &header).expect_err("unspeakable");
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(!path.exists());
    }
}
