//! Writes a file: header, entries in any order of databases, end.
//!
//! Entries can be encoded elsewhere, on any thread ([`encode_entry`]), and handed over as bytes;
//! the checksum and the SELECTDB opcodes are the writer's.

use std::io::{self, Write};

use crc_fast::{CrcAlgorithm, Digest};
use keyspace::value::ValueRef;

use super::encode::{Compression, Encoder, length};
use super::format;
use super::reader::Use;

/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 128 << 10;

/// How a file is written.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The option `rdbcompression`.
    pub compression: Compression,
    /// The option `rdbchecksum`: without it the file ends in a checksum of 0.
    pub has_checksum: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { compression: Compression::Lzf, has_checksum: true }
    }
}

/// What the header tells.
#[derive(Debug, Default, Clone)]
pub struct Header<'a> {
    /// The version that we behave as.
    pub redis_version: &'a str,
    /// Now, in seconds since 1970.
    pub created_s: i64,
    /// Memory in use, in bytes.
    pub used_memory: u64,
    /// Whether some hash may have fields that expire.
    pub has_field_times: bool,
    /// Whether it is the base of an append-only file.
    pub is_aof_base: bool,
    /// Further fields.
    pub more: &'a [(&'a str, String)],
}

/// Writes a file; see the module.
pub struct Writer<W: Write> {
    out: W,
    digest: Option<Digest>,
    encoder: Encoder,
    buffer: Vec<u8>,
    db: Option<usize>,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Starts with magic, version and the header's fields.
    pub fn new(out: W, options: Options, header: &Header<'_>) -> io::Result<Writer<W>> {
        let mut writer = Writer {
            out,
            digest: options.has_checksum.then(|| Digest::new(CrcAlgorithm::Crc64Redis)),
            encoder: Encoder::new(options.compression),
            buffer: Vec::with_capacity(BUFFER_BYTES + BUFFER_BYTES / 4),
            db: None,
            written: 0,
        };
        let version = match header.has_field_times {
            true => format::VERSION_FIELD_TIMES,
            false => format::VERSION_WRITTEN,
        };
        writer.buffer.extend_from_slice(format!("REDIS{version:04}").as_bytes());
        writer.aux("redis-ver", header.redis_version);
        writer.aux("redis-bits", "64");
        writer.aux("ctime", &header.created_s.to_string());
        writer.aux("used-mem", &header.used_memory.to_string());
        header.more.iter().for_each(|(name, value)| writer.aux(name, value));
        writer.aux("aof-base", if header.is_aof_base { "1" } else { "0" });
        Ok(writer)
    }

    fn aux(&mut self, name: &str, value: &str) {
        self.buffer.push(format::OP_AUX);
        self.encoder.string(name.as_bytes(), &mut self.buffer);
        self.encoder.string(value.as_bytes(), &mut self.buffer);
    }

    /// Bytes of the file so far.
    pub fn written(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// A library of functions, which come before all keys.
    pub fn function(&mut self, source: &[u8]) -> io::Result<()> {
        self.buffer.push(format::OP_FUNCTION2);
        self.encoder.string(source, &mut self.buffer);
        self.spill()
    }

    /// Says how many keys of this database are likely to come, and how many of them expire.
    pub fn sizes(&mut self, db: usize, keys: u64, volatile: u64) -> io::Result<()> {
        self.select(db);
        self.buffer.push(format::OP_RESIZEDB);
        length(keys, &mut self.buffer);
        length(volatile, &mut self.buffer);
        self.spill()
    }

    fn select(&mut self, db: usize) {
        if self.db != Some(db) {
            self.buffer.push(format::OP_SELECTDB);
            length(db as u64, &mut self.buffer);
            self.db = Some(db);
        }
    }

    /// One key with its value; `expire_at` in milliseconds since 1970.
    pub fn entry(
        &mut self,
        db: usize,
        key: &[u8],
        value: ValueRef<'_>,
        expire_at: Option<i64>,
        last_use: Use,
    ) -> io::Result<()> {
        self.select(db);
        encode_entry(&mut self.encoder, &mut self.buffer, key, value, expire_at, last_use);
        self.spill()
    }

    /// Entries of one database that [`encode_entry`] has encoded.
    pub fn encoded(&mut self, db: usize, entries: &[u8]) -> io::Result<()> {
        self.select(db);
        if entries.len() < BUFFER_BYTES {
            self.buffer.extend_from_slice(entries);
            return self.spill();
        }
        self.flush()?;
        self.write(entries)
    }

    fn spill(&mut self) -> io::Result<()> {
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.write(&buffer);
        buffer.clear();
        self.buffer = buffer;
        result
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(digest) = &mut self.digest {
            digest.update(bytes);
        }
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Writes the end and gives the sink back, flushed but not synced.
    pub fn finish(mut self) -> io::Result<W> {
        self.buffer.push(format::OP_EOF);
        self.flush()?;
        let crc = self.digest.take().map_or(0, |digest| digest.finalize());
        self.out.write_all(&crc.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Appends one key with its value, without its database; `expire_at` in milliseconds since 1970.
pub fn encode_entry(
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
    key: &[u8],
    value: ValueRef<'_>,
    expire_at: Option<i64>,
    last_use: Use,
) {
    if let Some(at) = expire_at {
        out.push(format::OP_EXPIRETIME_MS);
        out.extend_from_slice(&at.to_le_bytes());
    }
    match last_use {
        Use::Unknown => {}
        Use::IdleSeconds(seconds) => {
            out.push(format::OP_IDLE);
            length(seconds, out);
        }
        Use::Frequency(counter) => out.extend_from_slice(&[format::OP_FREQ, counter]),
    }
    out.push(Encoder::kind(value));
    encoder.string(key, out);
    encoder.value(value, out);
}
