//! Host I/O: lets clients read the files of the programs, and no others (GDB manual, E.7).

use gdbstub::target::ext::host_io as io;
use gdbstub::target::ext::host_io::{HostIoErrno, HostIoError, HostIoResult};

use crate::server::open_files::MAX_OPEN;
use crate::server::target::SnapshotTarget;

fn errno<T>(errno: HostIoErrno) -> HostIoResult<T, SnapshotTarget> {
    Err(HostIoError::Errno(errno))
}

impl io::HostIo for SnapshotTarget {
    fn support_open(&mut self) -> Option<io::HostIoOpenOps<'_, Self>> {
        Some(self)
    }

    fn support_close(&mut self) -> Option<io::HostIoCloseOps<'_, Self>> {
        Some(self)
    }

    fn support_pread(&mut self) -> Option<io::HostIoPreadOps<'_, Self>> {
        Some(self)
    }

    fn support_fstat(&mut self) -> Option<io::HostIoFstatOps<'_, Self>> {
        Some(self)
    }

    fn support_setfs(&mut self) -> Option<io::HostIoSetfsOps<'_, Self>> {
        Some(self)
    }
}

impl io::HostIoOpen for SnapshotTarget {
    fn open(
        &mut self,
        filename: &[u8],
        flags: io::HostIoOpenFlags,
        _mode: io::HostIoOpenMode,
    ) -> HostIoResult<u32, Self> {
        let Some(program) = self.files.program(filename) else {
            return errno(HostIoErrno::ENOENT);
        };
        let writes = io::HostIoOpenFlags::O_WRONLY
            | io::HostIoOpenFlags::O_RDWR
            | io::HostIoOpenFlags::O_CREAT
            | io::HostIoOpenFlags::O_TRUNC;
        if flags.intersects(writes) {
            return errno(HostIoErrno::EROFS);
        }
        let open = &mut self.files.open;
        let fd = match open.iter().position(Option::is_none) {
            Some(fd) => fd,
            None if open.len() < MAX_OPEN => {
                open.push(None);
                open.len() - 1
            }
            None => return errno(HostIoErrno::EMFILE),
        };
        open[fd] = Some(program);
        Ok(fd as u32)
    }
}

impl io::HostIoClose for SnapshotTarget {
    fn close(&mut self, fd: u32) -> HostIoResult<(), Self> {
        match self.files.open.get_mut(fd as usize) {
            Some(used) if used.is_some() => {
                *used = None;
                Ok(())
            }
            _ => errno(HostIoErrno::EBADF),
        }
    }
}

impl io::HostIoPread for SnapshotTarget {
    fn pread(
        &mut self,
        fd: u32,
        count: usize,
        offset: u64,
        buf: &mut [u8],
    ) -> HostIoResult<usize, Self> {
        let Some(program) = self.files.opened(fd) else {
            return errno(HostIoErrno::EBADF);
        };
        let bytes = program.elf.bytes();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = bytes.get(start..).unwrap_or(&[]);
        let count = rest.len().min(count).min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        if count > 0 && program.elf.remaining() < start + count {
            return errno(HostIoErrno::EIO);
        }
        Ok(count)
    }
}

impl io::HostIoFstat for SnapshotTarget {
    fn fstat(&mut self, fd: u32) -> HostIoResult<io::HostIoStat, Self> {
        let Some(program) = self.files.opened(fd) else {
            return errno(HostIoErrno::EBADF);
        };
        let size = program.elf.bytes().len() as u64;
        Ok(io::HostIoStat {
            st_dev: 0,
            st_ino: 0,
            st_mode: io::HostIoOpenMode::S_IFREG | io::HostIoOpenMode::S_IRUSR,
            st_nlink: 1,
            st_uid: 0,
            st_gid: 0,
            st_rdev: 0,
            st_size: size,
            st_blksize: 4096,
            st_blocks: size.div_ceil(512),
            st_atime: 0,
            st_mtime: 0,
            st_ctime: 0,
        })
    }
}

impl io::HostIoSetfs for SnapshotTarget {
    fn setfs(&mut self, _fs: io::FsKind) -> HostIoResult<(), Self> {
        Ok(())
    }
}
