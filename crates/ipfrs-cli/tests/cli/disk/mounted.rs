//! A disk that records every change of its files, and that fails on request: a file system in memory, which the kernel
//! mounts (FUSE). It is below everything that the daemon stores.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, WriteFlags,
};
use parking_lot::Mutex;
use tempfile::TempDir;

use super::tree::{Change, Content, Number, Tree};
use crate::harness::skipped;

/// The kernel makes all changes itself, so it may keep what it knows.
const FOREVER: Duration = Duration::from_secs(3_600);
const BLOCK_BYTES: u32 = 4_096;
const CAPACITY_BLOCKS: u64 = 16 << 20;

/// Way in which a disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Writes fail with `EIO`.
    Write,
    /// Syncs fail with `EIO`, and what they should have made durable is lost in a power failure.
    Sync,
    /// Writes fail with `ENOSPC`, and so do new files.
    Full,
    /// Writes take half of their bytes, then fail with `ENOSPC`.
    Torn,
    /// Reads fail with `EIO`. The kernel drops the pages of files that are opened meanwhile.
    Read,
}

/// A fault of all files whose path contains a text, after a number of operations that it would concern.
#[derive(Debug, Clone)]
pub(crate) struct Failing {
    pub(crate) fault: Fault,
    pub(crate) path: String,
    pub(crate) after: u32,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    /// Time of all files.
    mounted: SystemTime,
    /// Path of each file and directory when it got its name.
    paths: HashMap<Number, PathBuf>,
    log: Vec<Change>,
    next: Number,
    failing: Option<Failing>,
    /// Number of operations that failed.
    failed: u64,
}

impl State {
    fn new() -> Self {
        Self {
            tree: Tree::default(),
            mounted: SystemTime::now(),
            paths: HashMap::new(),
            log: Vec::new(),
            next: 0,
            failing: None,
            failed: 0,
        }
    }

    fn apply(&mut self, change: Change) {
        self.tree.apply(&change);
        self.log.push(change);
    }

    fn attributes(&self, number: Number) -> Option<FileAttr> {
        let inode = self.tree.get(number)?;
        let (kind, size) = match &inode.content {
            Content::File(bytes) => (FileType::RegularFile, bytes.len() as u64),
            Content::Directory(_) => (FileType::Directory, 0),
        };
        Some(FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(512),
            atime: self.mounted,
            mtime: self.mounted,
            ctime: self.mounted,
            crtime: self.mounted,
            kind,
            perm: (inode.mode & 0o7777) as u16,
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        })
    }

    fn create(&mut self, directory: Number, name: &OsStr, is_directory: bool, mode: u32) -> Result<FileAttr, Errno> {
        let path = self.path(directory, name);
        if self.fails(&path, &[Fault::Full, Fault::Torn]).is_some() {
            return Err(Errno::ENOSPC);
        }
        let number = self.next + 2;
        self.next += 1;
        self.apply(Change::Create { number, is_directory, mode });
        self.apply(Change::Link { directory, name: name.to_owned(), number });
        self.paths.insert(number, path);
        Ok(self.attributes(number).unwrap())
    }

    fn path(&self, directory: Number, name: &OsStr) -> PathBuf {
        self.paths.get(&directory).map_or_else(|| PathBuf::from(name), |path| path.join(name))
    }

    /// Returns the fault of an operation on the file at `path`, if it is one of `faults` and its turn.
    fn fails(&mut self, path: &Path, faults: &[Fault]) -> Option<Fault> {
        let failing = self.failing.as_mut()?;
        if !faults.contains(&failing.fault) || !path.to_string_lossy().contains(&failing.path) {
            return None;
        }
        if failing.after > 0 {
            failing.after -= 1;
            return None;
        }
        self.failed += 1;
        Some(failing.fault)
    }

    fn fails_at(&mut self, number: Number, faults: &[Fault]) -> Option<Fault> {
        let path = self.paths.get(&number).cloned().unwrap_or_default();
        self.fails(&path, faults)
    }

    fn sync(&mut self, number: Number) -> Result<(), Errno> {
        if self.fails_at(number, &[Fault::Sync]).is_some() {
            // The kernel drops pages that it could not write. File systems retry changes of directories.
            if self.tree.file(number).is_some() {
                self.apply(Change::FailedSync { number });
            }
            return Err(Errno::EIO);
        }
        self.apply(Change::Sync { number });
        Ok(())
    }
}

/// A mounted disk, which is unmounted when it is dropped.
pub(crate) struct Disk {
    state: Arc<Mutex<State>>,
    directory: TempDir,
    session: Option<BackgroundSession>,
}

impl Disk {
    /// Mounts an empty disk. Returns `None`, and says so, if this system or this user cannot mount one.
    pub(crate) fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let state = Arc::new(Mutex::new(State::new()));
        match fuser::spawn_mount(Served(Arc::clone(&state)), directory.path(), &Config::default()) {
            Ok(session) => Some(Self { state, directory, session: Some(session) }),
            Err(error) if cannot_mount(&error) => {
                skipped(&format!("no file system can be mounted here, so the disk tests do not run: {error}"));
                None
            }
            Err(error) => panic!("cannot mount a file system: {error}"),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the changes so far.
    pub(crate) fn log(&self) -> Vec<Change> {
        self.state.lock().log.clone()
    }

    /// Returns the number of changes so far.
    pub(crate) fn position(&self) -> usize {
        self.state.lock().log.len()
    }

    /// Begins or ends a fault.
    pub(crate) fn set_failing(&self, failing: Option<Failing>) {
        let mut state = self.state.lock();
        (state.failing, state.failed) = (failing, 0);
    }

    /// Makes reads of all files fail whose path contains a text, until [`set_failing`](Self::set_failing) ends it.
    pub(crate) fn fail_reads(&self, path: &str) {
        self.set_failing(Some(Failing { fault: Fault::Read, path: path.to_owned(), after: 0 }));
        open_all(self.path());
    }
}

/// Opens all files in a directory, of which the kernel then drops the pages while reads fail.
fn open_all(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => open_all(&entry.path()),
            // A draft may have another name by now.
            false => drop(File::open(entry.path())),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}

/// Whether the system lacks FUSE, or the right or the program to mount.
fn cannot_mount(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

struct Served(Arc<Mutex<State>>);

impl Filesystem for Served {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let state = self.0.lock();
        match state.tree.entry(parent.0, name) {
            Some(number) => reply.entry(&FOREVER, &state.attributes(number).unwrap(), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.lock().attributes(number.0) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<fuser::TimeOrNow>,
        _: Option<fuser::TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.0.lock();
        if let Some(mode) = mode {
            state.tree.set_mode(number.0, mode);
        }
        if let Some(length) = size {
            if state.fails_at(number.0, &[Fault::Write]).is_some() {
                return reply.error(Errno::EIO);
            }
            state.apply(Change::Truncate { file: number.0, length });
        }
        reply.attr(&FOREVER, &state.attributes(number.0).unwrap());
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        match self.0.lock().create(parent.0, name, true, mode) {
            Ok(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, _: i32, reply: ReplyCreate) {
        match self.0.lock().create(parent.0, name, false, mode) {
            Ok(attributes) => {
                reply.created(&FOREVER, &attributes, Generation(0), FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let is_read = |failing: &Failing| failing.fault == Fault::Read;
        let drops_pages = self.0.lock().failing.as_ref().is_some_and(is_read);
        let flags = if drops_pages { FopenFlags::empty() } else { FopenFlags::FOPEN_KEEP_CACHE };
        reply.opened(FileHandle(0), flags);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.0.lock().apply(Change::Unlink { directory: parent.0, name: name.to_owned() });
        reply.ok();
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut state = self.0.lock();
        let number = state.tree.entry(parent.0, name);
        if number.and_then(|number| state.tree.entries(number)).is_some_and(|entries| !entries.is_empty()) {
            return reply.error(Errno::ENOTEMPTY);
        }
        state.apply(Change::Unlink { directory: parent.0, name: name.to_owned() });
        reply.ok();
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.0.lock();
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let Some(number) = state.tree.entry(parent.0, name) else { return reply.error(Errno::ENOENT) };
        let to: (Number, OsString) = (new_parent.0, new_name.to_owned());
        state.apply(Change::Rename { from: (parent.0, name.to_owned()), to, number });
        let path = state.path(new_parent.0, new_name);
        state.paths.insert(number, path);
        reply.ok();
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut state = self.0.lock();
        state.apply(Change::Link { directory: parent.0, name: name.to_owned(), number: number.0 });
        reply.entry(&FOREVER, &state.attributes(number.0).unwrap(), Generation(0));
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut state = self.0.lock();
        if state.fails_at(number.0, &[Fault::Read]).is_some() {
            return reply.error(Errno::EIO);
        }
        let Some(bytes) = state.tree.file(number.0) else { return reply.error(Errno::EISDIR) };
        let start = bytes.len().min(offset as usize);
        reply.data(&bytes[start..bytes.len().min(start + size as usize)]);
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.0.lock();
        let data = match state.fails_at(number.0, &[Fault::Write, Fault::Full, Fault::Torn]) {
            Some(Fault::Write) => return reply.error(Errno::EIO),
            // The rest of a write that was cut short is the next operation.
            Some(Fault::Torn) if data.len() > 1 && state.failed % 2 == 1 => &data[..data.len() / 2],
            Some(_) => return reply.error(Errno::ENOSPC),
            None => data,
        };
        state.apply(Change::Write { file: number.0, offset, data: data.into() });
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.0.lock().sync(number.0) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.0.lock().sync(number.0) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let state = self.0.lock();
        let Some(entries) = state.tree.entries(number.0) else { return reply.error(Errno::ENOTDIR) };
        for (position, (name, number)) in entries.iter().enumerate().skip(offset as usize) {
            let kind = state.attributes(*number).unwrap().kind;
            if reply.add(INodeNo(*number), position as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let is_full = |failing: &Failing| matches!(failing.fault, Fault::Full | Fault::Torn) && failing.after == 0;
        let free = if self.0.lock().failing.as_ref().is_some_and(is_full) { 0 } else { CAPACITY_BLOCKS / 2 };
        reply.statfs(CAPACITY_BLOCKS, free, free, 1 << 20, 1 << 19, BLOCK_BYTES, 255, BLOCK_BYTES);
    }
}
