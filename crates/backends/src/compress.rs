//! Bodies compressed once, to be sent many times. The levels are those that pay for bodies of some
//! kilobytes that are compressed off the path of a request.

use std::io::Write;

use services::tables::page::Coding;

const GZIP_LEVEL: u32 = 6;
const BROTLI_QUALITY: u32 = 5;
/// Logarithms of Brotli's window, which is as small as the body allows: it is made anew each time.
const BROTLI_WINDOWS: std::ops::RangeInclusive<u32> = 10..=20;
const ZSTD_LEVEL: i32 = 3;

/// The body in a coding; nothing if that fails, or does not make it smaller.
pub fn compress(coding: Coding, body: &[u8]) -> Vec<u8> {
    let packed = match coding {
        Coding::Plain => return Vec::new(),
        Coding::Gzip => {
            let level = flate2::Compression::new(GZIP_LEVEL);
            let mut out = flate2::write::GzEncoder::new(Vec::new(), level);
            out.write_all(body).and_then(|()| out.finish())
        }
        Coding::Br => {
            let (least, most) = BROTLI_WINDOWS.into_inner();
            let window = (usize::BITS - body.len().leading_zeros()).clamp(least, most);
            let mut out = Vec::new();
            let mut writer = brotli::CompressorWriter::new(&mut out, 4096, BROTLI_QUALITY, window);
            let done = writer.write_all(body).and_then(|()| writer.flush());
            drop(writer);
            done.map(|()| out)
        }
        Coding::Zstd => zstd::bulk::compress(body, ZSTD_LEVEL),
    };
    packed.ok().filter(|packed| packed.len() < body.len()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn bodies_come_back() {
        let body = "[{\"id\":\"a\",\"text\":\"milk\"}]".repeat(100).into_bytes();
        let back = |coding| {
            let packed = compress(coding, &body);
            assert!(packed.len() < body.len() / 4, "{coding:?}");
            let mut out = Vec::new();
            match coding {
                Coding::Gzip => flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut out),
                Coding::Br => brotli::Decompressor::new(&packed[..], 4096).read_to_end(&mut out),
                _ => zstd::Decoder::new(&packed[..]).and_then(|mut z| z.read_to_end(&mut out)),
            }
            .expect("it was compressed here");
            out
        };
        for coding in [Coding::Gzip, Coding::Br, Coding::Zstd] {
            assert_eq!(back(coding), body);
            assert!(compress(coding, b"a").is_empty());
        }
    }
}
