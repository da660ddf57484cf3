//! Large files in formats that are designed for reading in parts: only a small part may be fetched.

use crate::server::Server;
use crate::{open, quick};
use std::sync::{Arc, Mutex};
use thalweg_sparse::{RemoteFile, RemoteOptions, Span};

/// A file on a server, with a log of the requests.
struct Served {
    server: Server,
    file: RemoteFile,
    log: Arc<Mutex<Vec<String>>>,
}

impl Served {
    async fn new(bytes: Vec<u8>) -> Self {
        let log = Arc::<Mutex<Vec<String>>>::default();
        let requests = log.clone();
        let observer = Arc::new(move |request: &thalweg_sparse::Request| {
            requests.lock().unwrap().push(request.to_string())
        });
        let server = Server::start(bytes);
        let file =
            open(&server, RemoteOptions { observer: Some(observer), read_ahead: 16 << 20, ..quick() }).await;
        Self { server, file, log }
    }

    async fn at(&self, position: u64, length: usize) -> Vec<u8> {
        self.file.read(position, length).await.unwrap().to_vec()
    }

    fn fetched_little(&self, what: &str) {
        let (fetched, length) = (self.file.statistics().fetched, self.file.length());
        let percent = fetched as f64 * 100.0 / length as f64;
        println!("{what}: {fetched} of {length} bytes ({percent:.2} %)");
        self.log.lock().unwrap().iter().for_each(|line| println!("  {line}"));
        assert!(percent < 2.0, "{percent:.2} % of the file were fetched");
        assert!(self.server.asked() <= fetched);
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()))
}

fn u32_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()))
}

mod tiff {
    pub const SIDE: u32 = 8192;
    pub const TILE: u32 = 256;

    pub fn tile(number: u32) -> Vec<u8> {
        (0..TILE * TILE).map(|at| (at.wrapping_mul(number + 7) >> 5) as u8).collect()
    }

    /// Returns an image of 64 MiB in tiles, one byte per pixel, with its directory at the end.
    pub fn write() -> Vec<u8> {
        let tiles = (SIDE / TILE) * (SIDE / TILE);
        let mut file = b"II*\0\0\0\0\0".to_vec();
        let mut offsets = Vec::new();
        for number in 0..tiles {
            offsets.push(file.len() as u32);
            file.extend(tile(number));
        }
        let list = |file: &mut Vec<u8>, numbers: &[u32]| {
            let at = file.len() as u32;
            numbers.iter().for_each(|number| file.extend(number.to_le_bytes()));
            at
        };
        let offsets_at = list(&mut file, &offsets);
        let counts_at = list(&mut file, &vec![TILE * TILE; tiles as usize]);
        let directory = file.len() as u32;
        // Tag, type (3: 16 bits, 4: 32 bits), count, value or its offset.
        let entries: [(u16, u16, u32, u32); 9] = [
            (256, 4, 1, SIDE),
            (257, 4, 1, SIDE),
            (258, 3, 1, 8),
            (259, 3, 1, 1),
            (262, 3, 1, 1),
            (322, 4, 1, TILE),
            (323, 4, 1, TILE),
            (324, 4, tiles, offsets_at),
            (325, 4, tiles, counts_at),
        ];
        file.extend((entries.len() as u16).to_le_bytes());
        for (tag, kind, count, value) in entries {
            file.extend(tag.to_le_bytes());
            file.extend(kind.to_le_bytes());
            file.extend(count.to_le_bytes());
            file.extend(value.to_le_bytes());
        }
        file.extend([0; 4]);
        file[4..8].copy_from_slice(&directory.to_le_bytes());
        file
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_directory_and_one_tile_of_a_tiff() {
    let served = Served::new(tiff::write()).await;
    let directory = u32_at(&served.at(0, 8).await, 4);
    let count = u16_at(&served.at(directory, 2).await, 0);
    let entries = served.at(directory + 2, count as usize * 12).await;
    let value = |tag: u64| {
        let entry = entries.chunks(12).find(|entry| u16_at(entry, 0) == tag).unwrap();
        if u16_at(entry, 2) == 3 { u16_at(entry, 8) } else { u32_at(entry, 8) }
    };
    assert_eq!((value(256), value(322)), (u64::from(tiff::SIDE), u64::from(tiff::TILE)));
    let number = 17 * (value(256) / value(322)) + 5;
    let offset = u32_at(&served.at(value(324) + number * 4, 4).await, 0);
    let length = u32_at(&served.at(value(325) + number * 4, 4).await, 0);
    assert_eq!(served.at(offset, length as usize).await, tiff::tile(number as u32));
    served.fetched_little("the directory and one tile of a TIFF");
}

mod zip {
    pub fn member(number: u32) -> Vec<u8> {
        format!("member {number}, ").bytes().cycle().take(200_000 + number as usize).collect()
    }

    pub fn sum(bytes: &[u8]) -> u32 {
        let mut sum = !0u32;
        for byte in bytes {
            sum ^= u32::from(*byte);
            for _ in 0..8 {
                sum = sum >> 1 ^ if sum & 1 == 1 { 0xEDB8_8320 } else { 0 };
            }
        }
        !sum
    }

    /// Returns a zip of 300 members of 200 KB, stored without compression.
    pub fn write() -> Vec<u8> {
        let (mut file, mut directory) = (Vec::new(), Vec::new());
        for number in 0..300u32 {
            let (name, data) = (format!("folder/{number}.txt"), member(number));
            let mut head = Vec::new();
            for half in [20u16, 0, 0, 0, 0x5821] {
                head.extend(half.to_le_bytes());
            }
            for word in [sum(&data), data.len() as u32, data.len() as u32] {
                head.extend(word.to_le_bytes());
            }
            head.extend((name.len() as u16).to_le_bytes());
            head.extend([0; 2]);
            directory.extend(b"PK\x01\x02\x14\x00");
            directory.extend(&head);
            directory.extend([0; 10]);
            directory.extend((file.len() as u32).to_le_bytes());
            directory.extend(name.as_bytes());
            file.extend(b"PK\x03\x04");
            file.extend(&head);
            file.extend(name.as_bytes());
            file.extend(data);
        }
        let at = file.len() as u32;
        file.extend(&directory);
        file.extend(b"PK\x05\x06\0\0\0\0\x2c\x01\x2c\x01");
        file.extend((directory.len() as u32).to_le_bytes());
        file.extend(at.to_le_bytes());
        file.extend([0; 2]);
        file
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_member_of_a_zip() {
    let served = Served::new(zip::write()).await;
    let length = served.file.length();
    let end = served.at(length - 22, 22).await;
    assert_eq!(&end[..4], b"PK\x05\x06");
    let directory = served.at(u32_at(&end, 16), u32_at(&end, 12) as usize).await;
    let mut at = 0;
    let (offset, size, sum) = loop {
        let entry = &directory[at..];
        let name = &entry[46..][..u16_at(entry, 28) as usize];
        if name == b"folder/222.txt" {
            break (u32_at(entry, 42), u32_at(entry, 24), u32_at(entry, 16));
        }
        at += 46 + name.len() + (u16_at(entry, 30) + u16_at(entry, 32)) as usize;
    };
    let head = served.at(offset, 30).await;
    let data = served.at(offset + 30 + u16_at(&head, 26) + u16_at(&head, 28), size as usize).await;
    assert_eq!((&data, u64::from(zip::sum(&data))), (&zip::member(222), sum));
    served.fetched_little("one member of a zip");
    if let Ok(python) = std::process::Command::new("python3").arg("--version").output()
        && python.status.success()
    {
        // Check with another implementation that the file is a valid zip.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.zip");
        std::fs::write(&path, zip::write()).unwrap();
        let tested =
            std::process::Command::new("python3").args(["-m", "zipfile", "-t"]).arg(&path).output().unwrap();
        assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
    }
}

/// Parquet. Its metadata is in Thrift's compact protocol, of which only the necessary part is implemented
/// here.
mod parquet {
    pub const COLUMNS: u64 = 120;
    pub const ROWS: u64 = 50_000;

    pub fn value(column: u64, row: u64) -> i64 {
        (column * 1_000_003 + row * row).cast_signed()
    }

    pub enum Field {
        Int(u8, i64),
        Long(u8, i64),
        Text(u8, String),
        Struct(u8, Vec<Field>),
        Structs(u8, Vec<Vec<Field>>),
        Ints(u8, Vec<i64>),
        Texts(u8, Vec<String>),
    }

    fn varint(out: &mut Vec<u8>, mut number: u64) {
        while number >= 128 {
            out.push(number as u8 | 128);
            number >>= 7;
        }
        out.push(number as u8);
    }

    fn zigzag(out: &mut Vec<u8>, number: i64) {
        varint(out, (number << 1 ^ number >> 63).cast_unsigned());
    }

    fn list(out: &mut Vec<u8>, count: usize, kind: u8) {
        if count < 15 {
            out.push((count as u8) << 4 | kind);
        } else {
            out.push(0xF0 | kind);
            varint(out, count as u64);
        }
    }

    pub fn encode(out: &mut Vec<u8>, fields: &[Field]) {
        let mut last = 0;
        for field in fields {
            let mut begin = |out: &mut Vec<u8>, number: u8, kind: u8| {
                out.push((number - last) << 4 | kind);
                last = number;
            };
            match field {
                Field::Int(number, value) | Field::Long(number, value) => {
                    begin(out, *number, if matches!(field, Field::Int(..)) { 5 } else { 6 });
                    zigzag(out, *value);
                }
                Field::Text(number, text) => {
                    begin(out, *number, 8);
                    varint(out, text.len() as u64);
                    out.extend(text.as_bytes());
                }
                Field::Struct(number, fields) => {
                    begin(out, *number, 12);
                    encode(out, fields);
                }
                Field::Structs(number, structs) => {
                    begin(out, *number, 9);
                    list(out, structs.len(), 12);
                    structs.iter().for_each(|fields| encode(out, fields));
                }
                Field::Ints(number, values) => {
                    begin(out, *number, 9);
                    list(out, values.len(), 5);
                    values.iter().for_each(|value| zigzag(out, *value));
                }
                Field::Texts(number, texts) => {
                    begin(out, *number, 9);
                    list(out, texts.len(), 8);
                    for text in texts {
                        varint(out, text.len() as u64);
                        out.extend(text.as_bytes());
                    }
                }
            }
        }
        out.push(0);
    }

    /// A decoded value.
    #[derive(Debug)]
    pub enum Read {
        Number(i64),
        Text,
        List(Vec<Read>),
        Struct(Vec<(u8, Read)>),
    }

    impl Read {
        pub fn field(&self, wanted: u8) -> &Read {
            let Read::Struct(fields) = self else { panic!("no struct: {self:?}") };
            &fields.iter().find(|(number, _)| *number == wanted).unwrap().1
        }

        pub fn number(&self) -> u64 {
            if let Read::Number(number) = self {
                number.cast_unsigned()
            } else {
                panic!("no number: {self:?}")
            }
        }

        pub fn list(&self) -> &[Read] {
            if let Read::List(list) = self { list } else { panic!("no list: {self:?}") }
        }
    }

    fn take(input: &mut &[u8]) -> u8 {
        let (first, rest) = input.split_first().unwrap();
        *input = rest;
        *first
    }

    fn number(input: &mut &[u8]) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = take(input);
            number |= u64::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                return number;
            }
        }
    }

    fn decode_one(input: &mut &[u8], kind: u8) -> Read {
        match kind {
            5 | 6 => {
                let number = number(input);
                Read::Number((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
            }
            8 => {
                let length = number(input) as usize;
                *input = &input[length..];
                Read::Text
            }
            9 => {
                let head = take(input);
                let count = if head >> 4 == 15 { number(input) } else { u64::from(head >> 4) };
                Read::List((0..count).map(|_| decode_one(input, head & 15)).collect())
            }
            12 => decode(input),
            other => panic!("type {other}"),
        }
    }

    pub fn decode(input: &mut &[u8]) -> Read {
        let (mut fields, mut last) = (Vec::new(), 0);
        loop {
            let head = take(input);
            if head == 0 {
                return Read::Struct(fields);
            }
            last += head >> 4;
            fields.push((last, decode_one(input, head & 15)));
        }
    }

    /// Returns a file of 120 columns of 64-bit numbers, plain, one page each.
    pub fn write() -> Vec<u8> {
        let mut file = b"PAR1".to_vec();
        let mut schema = vec![vec![Field::Text(4, "schema".to_owned()), Field::Int(5, COLUMNS as i64)]];
        let mut chunks = Vec::new();
        for column in 0..COLUMNS {
            let name = format!("column {column}");
            schema.push(vec![Field::Int(1, 2), Field::Int(3, 0), Field::Text(4, name.clone())]);
            let (at, size) = (file.len() as i64, ROWS as i64 * 8);
            let page = vec![Field::Int(1, ROWS as i64), Field::Int(2, 0), Field::Int(3, 3), Field::Int(4, 3)];
            encode(
                &mut file,
                &[Field::Int(1, 0), Field::Int(2, size), Field::Int(3, size), Field::Struct(5, page)],
            );
            (0..ROWS).for_each(|row| file.extend(value(column, row).to_le_bytes()));
            let whole = file.len() as i64 - at;
            chunks.push(vec![
                Field::Long(2, at),
                Field::Struct(
                    3,
                    vec![
                        Field::Int(1, 2),
                        Field::Ints(2, vec![0]),
                        Field::Texts(3, vec![name]),
                        Field::Int(4, 0),
                        Field::Long(5, ROWS as i64),
                        Field::Long(6, whole),
                        Field::Long(7, whole),
                        Field::Long(9, at),
                    ],
                ),
            ]);
        }
        let group = vec![
            Field::Structs(1, chunks),
            Field::Long(2, file.len() as i64 - 4),
            Field::Long(3, ROWS as i64),
        ];
        let mut footer = Vec::new();
        encode(
            &mut footer,
            &[
                Field::Int(1, 1),
                Field::Structs(2, schema),
                Field::Long(3, ROWS as i64),
                Field::Structs(4, vec![group]),
            ],
        );
        file.extend(&footer);
        file.extend((footer.len() as u32).to_le_bytes());
        file.extend(b"PAR1");
        file
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_footer_and_one_column_of_a_parquet_file() {
    let served = Served::new(parquet::write()).await;
    let length = served.file.length();
    let end = served.at(length - 8, 8).await;
    assert_eq!(&end[4..], b"PAR1");
    let footer = served.at(length - 8 - u32_at(&end, 0), u32_at(&end, 0) as usize).await;
    let metadata = parquet::decode(&mut &footer[..]);
    let columns = metadata.field(4).list()[0].field(1).list();
    assert_eq!(columns.len() as u64, parquet::COLUMNS);
    let column = columns[77].field(3);
    let (at, size) = (column.field(9).number(), column.field(7).number());
    let chunk = served.file.read_many(&[Span::new(at, size)]).await.unwrap().remove(0);
    let mut rest = &chunk[..];
    let page = parquet::decode(&mut rest);
    assert_eq!((page.field(5).field(1).number(), rest.len() as u64), (parquet::ROWS, page.field(3).number()));
    for (row, value) in (0..).zip(rest.chunks(8)) {
        assert_eq!(i64::from_le_bytes(value.try_into().unwrap()), parquet::value(77, row));
    }
    served.fetched_little("the footer and one column of a Parquet file");
}
