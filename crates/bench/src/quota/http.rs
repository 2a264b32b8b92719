//! One kept-alive HTTP connection that asks and waits, for what comes before and after a run.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An answer comes within this time.
const TIMEOUT: Duration = Duration::from_secs(30);
/// An answer is not longer than this.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// See the module.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    request: Vec<u8>,
}

/// An answer's status and where its body is.
fn read_head(bytes: &[u8]) -> Option<(u16, usize, usize)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let length = if status == 304 { 0 } else { length.unwrap_or(0) };
    Some((status, end, length))
}

impl Connection {
    /// Connects to a port of this machine.
    pub fn to(port: u16) -> Result<Connection, String> {
        let stream = TcpStream::connect(("127.0.0.1", port)).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            Ok(stream)
        });
        let stream = stream.map_err(|error| format!("HTTP: {error}"))?;
        Ok(Connection { stream, buffer: Vec::new(), request: Vec::new() })
    }

    fn exchange(&mut self) -> Result<(u16, std::ops::Range<usize>), String> {
        let failed = |error: std::io::Error| format!("HTTP: {error}");
        self.stream.write_all(&self.request).map_err(failed)?;
        self.buffer.clear();
        let mut piece = [0; 8192];
        loop {
            let count = self.stream.read(&mut piece).map_err(failed)?;
            if count == 0 || self.buffer.len() > ANSWER_BYTES_MAX {
                return Err("HTTP: the answer is cut short or too long".into());
            }
            self.buffer.extend_from_slice(&piece[..count]);
            if let Some((status, start, length)) = read_head(&self.buffer)
                && self.buffer.len() >= start + length
            {
                return Ok((status, start..start + length));
            }
        }
    }

    /// Sends a request as it is; the answer's status, head and body.
    pub fn send(&mut self, request: &str) -> Result<(u16, &[u8], &[u8]), String> {
        self.request.clear();
        self.request.extend_from_slice(request.as_bytes());
        let (status, at) = self.exchange()?;
        Ok((status, &self.buffer[..at.start], &self.buffer[at]))
    }

    /// Asks; the answer's body. An error unless it has this status.
    pub fn ask(
        &mut self,
        method: &str,
        path: &str,
        secret: &str,
        body: &str,
        want: u16,
    ) -> Result<String, String> {
        self.request.clear();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {secret}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.request.extend_from_slice(head.as_bytes());
        let (status, at) = self.exchange()?;
        let body = String::from_utf8_lossy(&self.buffer[at]).into_owned();
        if status == want { Ok(body) } else { Err(format!("{method} {path}: {status} {body}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_when_they_are_whole() {
        let answer = b"HTTP/1.1 202 Accepted\r\ncontent-Length: 5\r\nx: y\r\n\r\nhello";
        assert_eq!(read_head(answer), Some((202, 50, 5)));
        assert_eq!(read_head(&answer[..40]), None);
        assert_eq!(read_head(b"HTTP/1.1 204 No Content\r\n\r\n"), Some((204, 27, 0)));
    }
}
