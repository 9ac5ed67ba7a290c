//! Attacks with the bodies of requests: endless, slow, deep, wide, and larger than they look.

use std::io::Write as _;
use std::net::TcpStream;

use flate2::{Compress, Compression, FlushCompress};

use super::{Attack, Victim, drip, flood, status, until_closed};

pub const ATTACKS: &[Attack] = &[
    Attack { name: "a body that says it is a terabyte", run: declared },
    Attack { name: "a body of a gigabyte that was not declared", run: undeclared },
    Attack { name: "bodies that stop", run: stopping },
    Attack { name: "bodies that drip", run: dripping },
    Attack { name: "as many large bodies as there are places", run: crowd },
    Attack { name: "a chunk larger than any number", run: huge_chunk },
    Attack { name: "chunks with endless extensions", run: extensions },
    Attack { name: "trailers without end", run: trailers },
    Attack { name: "JSON a million levels deep", run: deep },
    Attack { name: "JSON of ten million values", run: wide },
    Attack { name: "JSON of a million names", run: names },
    Attack { name: "JSON that is no text", run: no_text },
    Attack { name: "a gigabyte in a megabyte of gzip", run: gzip_bomb },
    Attack { name: "a gigabyte in gzip of many members", run: gzip_members },
    Attack { name: "a gigabyte in kilobytes of zstd", run: zstd_bomb },
    Attack { name: "zstd that wants a window of gigabytes", run: zstd_window },
    Attack { name: "lines of NDJSON without end", run: endless_line },
];

fn head(path: &str, fields: &str) -> String {
    format!(
        "POST /v1/topics/t/{path} HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\nconnection: close\r\n{fields}\r\n"
    )
}

fn sized(path: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let mut request =
        head(path, &format!("{fields}content-length: {}\r\n", body.len())).into_bytes();
    request.extend_from_slice(body);
    request
}

fn is_refused(answer: &str) {
    assert!(matches!(status(answer), 0 | 400..=499), "{}", answer.get(..300).unwrap_or(answer));
}

fn declared(victim: &Victim) -> Vec<TcpStream> {
    for path in ["messages", "publish"] {
        let answer = victim.ask(head(path, "content-length: 1000000000000\r\n"));
        assert_eq!(status(&answer), 413, "{answer}");
        // Whatever follows is not waited for.
        let mut stream = victim.connect();
        stream.write_all(head(path, "content-length: 1000000000\r\n").as_bytes()).unwrap();
        flood(&mut stream, &[b'x'; 1 << 16]);
    }
    Vec::new()
}

fn undeclared(victim: &Victim) -> Vec<TcpStream> {
    for path in ["messages", "publish"] {
        let mut stream = victim.connect();
        stream.write_all(head(path, "transfer-encoding: chunked\r\n").as_bytes()).unwrap();
        let mut chunk = b"10000\r\n".to_vec();
        chunk.extend_from_slice(&[b'x'; 0x10000]);
        chunk.extend_from_slice(b"\r\n");
        let chunks = flood(&mut stream, &chunk);
        assert!(chunks < 16_000, "a gigabyte was taken");
    }
    Vec::new()
}

fn stopping(victim: &Victim) -> Vec<TcpStream> {
    let send = |_| {
        let mut stream = victim.connect();
        stream.write_all(head("publish", "content-length: 1000\r\n").as_bytes()).unwrap();
        stream.write_all(b"half").unwrap();
        stream
    };
    let mut streams: Vec<TcpStream> = (0..40).map(send).collect();
    for stream in &mut streams {
        assert_eq!(status(&until_closed(stream)), 408);
    }
    Vec::new()
}

fn dripping(victim: &Victim) -> Vec<TcpStream> {
    let streams = (0..40).map(|number| {
        let fields = if number % 2 == 0 {
            "content-length: 100000\r\n"
        } else {
            "transfer-encoding: chunked\r\n"
        };
        let mut stream = victim.connect();
        stream.write_all(head("publish", fields).as_bytes()).unwrap();
        stream
    });
    drip(streams.collect(), b"1\r\nx\r\n");
    Vec::new()
}

/// Each of them is legal; all of them together are more than may be held.
fn crowd(victim: &Victim) -> Vec<TcpStream> {
    let send = |_| {
        let mut stream = victim.connect();
        let declared = format!("content-length: {}\r\n", 4 << 20);
        stream.write_all(head("publish", &declared).as_bytes()).unwrap();
        stream
    };
    let mut streams: Vec<TcpStream> = (0..60).map(send).collect();
    let part = vec![b'x'; 1 << 20];
    for stream in &mut streams {
        // Whoever was refused has been closed.
        let _refused = stream.write_all(&part).is_err();
    }
    let answers: Vec<u16> = streams.iter_mut().map(|one| status(&until_closed(one))).collect();
    assert!(answers.iter().all(|status| matches!(status, 0 | 408 | 429)), "{answers:?}");
    Vec::new()
}

fn huge_chunk(victim: &Victim) -> Vec<TcpStream> {
    for size in ["fffffffffffffffff", "7fffffffffffffff", "ffffffff", "-1", "0x5", "5 5", ""] {
        let request = head("publish", "transfer-encoding: chunked\r\n") + size + "\r\nxxxxx\r\n";
        is_refused(&victim.ask(request));
    }
    Vec::new()
}

fn extensions(victim: &Victim) -> Vec<TcpStream> {
    let mut stream = victim.connect();
    let start = head("publish", "transfer-encoding: chunked\r\n") + "1;";
    stream.write_all(start.as_bytes()).unwrap();
    let times = flood(&mut stream, &[b'x'; 1 << 16]);
    assert!(times < 1000, "{times}");
    Vec::new()
}

fn trailers(victim: &Victim) -> Vec<TcpStream> {
    let mut stream = victim.connect();
    let start = head("publish", "transfer-encoding: chunked\r\n") + "1\r\nx\r\n0\r\n";
    stream.write_all(start.as_bytes()).unwrap();
    let times = flood(&mut stream, "x-many: 1\r\n".repeat(6000).as_bytes());
    assert!(times < 1000, "{times}");
    Vec::new()
}

fn deep(victim: &Victim) -> Vec<TcpStream> {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("{\"body\":[", "]}")] {
        let json = open.repeat(1_000_000) + &close.repeat(1_000_000);
        is_refused(&victim.ask(sized("messages", "", json.as_bytes())));
        is_refused(&victim.ask(sized("messages", "", open.repeat(1_000_000).as_bytes())));
    }
    Vec::new()
}

fn wide(victim: &Victim) -> Vec<TcpStream> {
    for value in ["0", "{}", "[]", "\"\"", "null"] {
        let json = format!("{{\"messages\":[{value}{}]}}", format!(",{value}").repeat(9_999_999));
        is_refused(&victim.ask(sized(
            "messages",
            "",
            &json.as_bytes()[..json.len().min(40 << 20)],
        )));
    }
    Vec::new()
}

fn names(victim: &Victim) -> Vec<TcpStream> {
    let names: String = (0..1_000_000).map(|number| format!("\"{number}\":\"\",")).collect();
    is_refused(&victim.ask(sized("messages", "", format!("{{{names}\"body\":\"x\"}}").as_bytes())));
    let headers = format!("{{\"body\":\"x\",\"headers\":{{{names}\"a\":\"b\"}}}}");
    is_refused(&victim.ask(sized("messages", "", headers.as_bytes())));
    Vec::new()
}

fn no_text(victim: &Victim) -> Vec<TcpStream> {
    for json in [
        &b"{\"body\":\"\xff\xfe\"}"[..],
        b"{\"body\":\"\\ud800\"}",
        b"{\"body\":\"x\",\"delay\":99999999999999999999999999}",
        b"{\"body\":\"x\",\"body\":\"y\"}",
        b"\xef\xbb\xbf{}",
        b"{\"body\":\"x\"}\x00",
    ] {
        is_refused(&victim.ask(sized("messages", "", json)));
    }
    Vec::new()
}

/// One member of gzip with a gigabyte of nothing: the same block again and again.
fn gzip_bomb(victim: &Victim) -> Vec<TcpStream> {
    let mut bomb = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let zeros = vec![0; 1 << 20];
    let mut compress = Compress::new(Compression::best(), false);
    let mut block = Vec::with_capacity(1 << 16);
    compress.compress_vec(&zeros, &mut block, FlushCompress::Full).unwrap();
    assert_eq!(compress.total_in(), 1 << 20);
    for _ in 0..1024 {
        bomb.extend_from_slice(&block);
    }
    explode(victim, "gzip", &bomb);
    Vec::new()
}

fn gzip_members(victim: &Victim) -> Vec<TcpStream> {
    let mut member = flate2::write::GzEncoder::new(Vec::new(), Compression::best());
    member.write_all(&vec![0; 1 << 20]).unwrap();
    explode(victim, "gzip", &member.finish().unwrap().repeat(1024));
    Vec::new()
}

fn zstd_bomb(victim: &Victim) -> Vec<TcpStream> {
    let frame = zstd::encode_all(&vec![0; 16 << 20][..], 19).unwrap();
    explode(victim, "zstd", &frame.repeat(64));
    let whole = zstd::encode_all(std::io::Read::take(std::io::repeat(0), 1 << 30), 3).unwrap();
    explode(victim, "zstd", &whole);
    Vec::new()
}

fn zstd_window(victim: &Victim) -> Vec<TcpStream> {
    // The header of a frame whose window is the largest there is, and a raw block.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff, 0x09, 0, 0, b'x'];
    explode(victim, "zstd", &frame);
    Vec::new()
}

/// In one piece, and as a crowd.
fn explode(victim: &Victim, coding: &str, bomb: &[u8]) {
    let fields = format!("content-encoding: {coding}\r\n");
    for path in ["messages", "publish"] {
        is_refused(&victim.ask(sized(path, &fields, bomb)));
    }
    let request = sized("messages", &fields, bomb);
    let mut streams: Vec<TcpStream> = (0..16).map(|_| victim.connect()).collect();
    for stream in &mut streams {
        // Whoever was refused early has been closed.
        let _refused = stream.write_all(&request).is_err();
    }
    streams.iter_mut().for_each(|stream| is_refused(&until_closed(stream)));
}

fn endless_line(victim: &Victim) -> Vec<TcpStream> {
    let start = |path: &str| {
        let start = head(path, "transfer-encoding: chunked\r\n");
        let mut stream = victim.connect();
        stream.write_all(start.replace("json", "x-ndjson").as_bytes()).unwrap();
        stream.write_all(b"9\r\n{\"body\":\"\r\n").unwrap();
        stream
    };
    let mut chunk = b"10000\r\n".to_vec();
    chunk.extend_from_slice(&[b'x'; 0x10000]);
    chunk.extend_from_slice(b"\r\n");
    let chunks = flood(&mut start("messages"), &chunk);
    assert!(chunks < 16_000, "a gigabyte was taken");
    // A transfer may be as long as it likes; of a line that is too long nothing is kept.
    let mut transfer = start("import");
    for _ in 0..4000 {
        transfer.write_all(&chunk).unwrap();
    }
    transfer.write_all(b"0\r\n\r\n").unwrap();
    let answer = until_closed(&mut transfer);
    assert!(answer.contains("line_too_large"), "{answer}");
    Vec::new()
}
