//! The known types: their names, aliases and extensions.

/// A type of files.
#[derive(Debug, PartialEq, Eq)]
pub struct Type {
    /// The name, such as `image/jpeg`.
    pub name: &'static str,
    /// The usual extension without a dot; empty if there is none.
    pub extension: &'static str,
    /// Other names of the type.
    pub aliases: &'static [&'static str],
}

/// Returns the type with this name or alias; case is ignored.
pub fn canonical(mime: &str) -> Option<&'static Type> {
    let name = essence(mime);
    let is = |known: &&str| known.eq_ignore_ascii_case(name);
    ALL.iter()
        .copied()
        .find(|known| is(&known.name))
        .or_else(|| ALL.iter().copied().find(|known| known.aliases.iter().any(is)))
}

/// Returns the usual extension of a type, without a dot; parameters of the type are ignored.
pub fn extension_of(mime: &str) -> Option<&'static str> {
    canonical(mime).map(|known| known.extension).filter(|extension| !extension.is_empty())
}

/// Returns a type without its parameters.
pub(super) fn essence(mime: &str) -> &str {
    mime.split_once(';').map_or(mime, |(name, _)| name).trim()
}

macro_rules! types {
    ($($id:ident $name:literal $extension:literal $([$($alias:literal),+])?;)+) => {
        $(pub(super) static $id: Type =
            Type { name: $name, extension: $extension, aliases: &[$($($alias),+)?] };)+
        /// All types.
        pub(super) static ALL: &[&Type] = &[$(&$id),+];
    };
}

types! {
    JPEG "image/jpeg" "jpg" ["image/jpg", "image/pjpeg"];
    PNG "image/png" "png" ["image/x-png"];
    APNG "image/vnd.mozilla.apng" "png" ["image/apng"];
    GIF "image/gif" "gif";
    WEBP "image/webp" "webp";
    AVIF "image/avif" "avif";
    HEIC "image/heic" "heic";
    HEIC_SEQUENCE "image/heic-sequence" "heic";
    HEIF "image/heif" "heif";
    HEIF_SEQUENCE "image/heif-sequence" "heif";
    TIFF "image/tiff" "tiff" ["image/tif", "image/x-tiff"];
    BMP "image/bmp" "bmp" ["image/x-bmp", "image/x-ms-bmp"];
    SVG "image/svg+xml" "svg";
    ICO "image/x-icon" "ico" ["image/vnd.microsoft.icon"];
    PSD "image/vnd.adobe.photoshop" "psd" ["image/x-psd", "application/photoshop"];
    JXL "image/jxl" "jxl";
    JP2 "image/jp2" "jp2";
    JPX "image/jpx" "jpf";
    JPM "image/jpm" "jpm" ["video/jpm"];
    JXS "image/jxs" "jxs";
    JXR "image/jxr" "jxr" ["image/vnd.ms-photo"];
    XPM "image/x-xpixmap" "xpm";
    ICNS "image/x-icns" "icns";
    PAT "image/x-gimp-pat" "pat";
    GBR "image/x-gimp-gbr" "gbr";
    XCF "image/x-xcf" "xcf";
    DJVU "image/vnd.djvu" "djvu";
    BPG "image/bpg" "bpg";
    DWG "image/vnd.dwg" "dwg" ["image/x-dwg", "application/acad", "application/x-dwg", "application/dwg"];
    HDR "image/vnd.radiance" "hdr";

    MP3 "audio/mpeg" "mp3" ["audio/x-mpeg", "audio/mp3"];
    FLAC "audio/flac" "flac" ["audio/x-flac"];
    WAV "audio/wav" "wav" ["audio/x-wav", "audio/vnd.wave", "audio/wave"];
    AIFF "audio/aiff" "aiff" ["audio/x-aiff"];
    MIDI "audio/midi" "midi" ["audio/mid", "audio/sp-midi", "audio/x-mid", "audio/x-midi"];
    AMR "audio/amr" "amr" ["audio/amr-nb"];
    AAC "audio/aac" "aac" ["audio/x-aac"];
    APE "audio/ape" "ape";
    AU "audio/basic" "au";
    VOC "audio/x-unknown" "voc";
    MUSEPACK "audio/musepack" "mpc";
    QCP "audio/qcelp" "qcp";
    M3U "application/vnd.apple.mpegurl" "m3u" ["audio/mpegurl"];
    RMVB "application/vnd.rn-realmedia-vbr" "rmvb";
    M4A "audio/x-m4a" "m4a";
    AUDIO_MP4 "audio/mp4" "mp4" ["audio/x-mp4a"];
    AUDIO_OGG "audio/ogg" "oga";
    VIDEO_OGG "video/ogg" "ogv";
    OGG "application/ogg" "ogg" ["application/x-ogg"];
    MP4 "video/mp4" "mp4";
    M4V "video/x-m4v" "m4v";
    MOV "video/quicktime" "mov";
    THREE_GP "video/3gpp" "3gp" ["video/3gp", "audio/3gpp"];
    THREE_G2 "video/3gpp2" "3g2" ["video/3g2", "audio/3gpp2"];
    WEBM "video/webm" "webm" ["audio/webm"];
    MKV "video/x-matroska" "mkv" ["video/matroska"];
    AVI "video/x-msvideo" "avi" ["video/avi", "video/msvideo"];
    FLV "video/x-flv" "flv";
    MPEG "video/mpeg" "mpeg";
    ASF "video/x-ms-asf" "asf" ["video/asf", "video/x-ms-wmv"];

    PDF "application/pdf" "pdf" ["application/x-pdf"];
    FDF "application/vnd.fdf" "fdf";
    PKCS7 "application/pkcs7-signature" "p7s";
    PS "application/postscript" "ps";
    RTF "text/rtf" "rtf" ["application/rtf"];
    DOCX "application/vnd.openxmlformats-officedocument.wordprocessingml.document" "docx";
    XLSX "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" "xlsx";
    PPTX "application/vnd.openxmlformats-officedocument.presentationml.presentation" "pptx";
    VSDX "application/vnd.ms-visio.drawing.main+xml" "vsdx";
    ODT "application/vnd.oasis.opendocument.text" "odt" ["application/x-vnd.oasis.opendocument.text"];
    ODS "application/vnd.oasis.opendocument.spreadsheet" "ods" ["application/x-vnd.oasis.opendocument.spreadsheet"];
    ODP "application/vnd.oasis.opendocument.presentation" "odp" ["application/x-vnd.oasis.opendocument.presentation"];
    ODG "application/vnd.oasis.opendocument.graphics" "odg" ["application/x-vnd.oasis.opendocument.graphics"];
    ODF "application/vnd.oasis.opendocument.formula" "odf" ["application/x-vnd.oasis.opendocument.formula"];
    OTT "application/vnd.oasis.opendocument.text-template" "ott" ["application/x-vnd.oasis.opendocument.text-template"];
    OTS "application/vnd.oasis.opendocument.spreadsheet-template" "ots" ["application/x-vnd.oasis.opendocument.spreadsheet-template"];
    OTP "application/vnd.oasis.opendocument.presentation-template" "otp" ["application/x-vnd.oasis.opendocument.presentation-template"];
    OTG "application/vnd.oasis.opendocument.graphics-template" "otg" ["application/x-vnd.oasis.opendocument.graphics-template"];
    ODC "application/vnd.oasis.opendocument.chart" "odc" ["application/x-vnd.oasis.opendocument.chart"];
    SXC "application/vnd.sun.xml.calc" "sxc";
    EPUB "application/epub+zip" "epub";
    DOC "application/msword" "doc" ["application/vnd.ms-word"];
    XLS "application/vnd.ms-excel" "xls" ["application/msexcel"];
    PPT "application/vnd.ms-powerpoint" "ppt" ["application/mspowerpoint"];
    MSG "application/vnd.ms-outlook" "msg";
    OLE "application/x-ole-storage" "";
    MOBI "application/x-mobipocket-ebook" "mobi";
    LIT "application/x-ms-reader" "lit";
    ACCDB "application/x-msaccess" "accdb";
    MDB "application/x-msaccess" "mdb";

    ZIP "application/zip" "zip" ["application/x-zip", "application/x-zip-compressed"];
    JAR "application/jar" "jar" ["application/java-archive", "application/jar-archive", "application/x-java-archive"];
    APK "application/vnd.android.package-archive" "apk";
    GZIP "application/gzip" "gz" ["application/x-gzip", "application/x-gunzip", "application/gzipped", "application/gzip-compressed", "application/x-gzip-compressed", "gzip/document"];
    ZSTD "application/zstd" "zst";
    XZ "application/x-xz" "xz";
    BZ2 "application/x-bzip2" "bz2";
    LZIP "application/lzip" "lz" ["application/x-lzip"];
    LZ4 "application/x-lz4" "lz4";
    SEVEN_Z "application/x-7z-compressed" "7z";
    RAR "application/x-rar-compressed" "rar" ["application/x-rar", "application/vnd.rar"];
    TAR "application/x-tar" "tar";
    CPIO "application/x-cpio" "cpio";
    XAR "application/x-xar" "xar";
    AR "application/x-archive" "a" ["application/x-unix-archive"];
    DEB "application/vnd.debian.binary-package" "deb";
    RPM "application/x-rpm" "rpm";
    CAB "application/vnd.ms-cab-compressed" "cab";
    INSTALL_SHIELD "application/x-installshield" "cab";

    ELF "application/x-elf" "";
    ELF_OBJECT "application/x-object" "";
    ELF_EXECUTABLE "application/x-executable" "";
    ELF_LIBRARY "application/x-sharedlib" "so";
    ELF_CORE "application/x-coredump" "";
    EXE "application/vnd.microsoft.portable-executable" "exe" ["application/x-msdownload", "application/x-dosexec"];
    MACH_O "application/x-mach-binary" "macho";
    CLASS "application/x-java-applet" "class";
    WASM "application/wasm" "wasm";
    SQLITE "application/vnd.sqlite3" "sqlite" ["application/x-sqlite3"];
    PARQUET "application/vnd.apache.parquet" "parquet" ["application/x-parquet"];
    HDF5 "application/x-hdf5" "h5";
    FITS "application/fits" "fits" ["image/fits"];
    DICOM "application/dicom" "dcm";
    TZIF "application/tzif" "";
    LNK "application/x-ms-shortcut" "lnk";
    NES "application/vnd.nintendo.snes.rom" "nes";
    GLB "model/gltf-binary" "glb";
    SHX "application/vnd.shx" "shx";
    SHP "application/vnd.shp" "shp";
    SWF "application/x-shockwave-flash" "swf";
    CRX "application/x-chrome-extension" "crx";
    TORRENT "application/x-bittorrent" "torrent";
    TTF "font/ttf" "ttf" ["font/sfnt", "application/x-font-ttf", "application/font-sfnt"];
    OTF "font/otf" "otf";
    TTC "font/collection" "ttc";
    EOT "application/vnd.ms-fontobject" "eot";
    WOFF "font/woff" "woff";
    WOFF2 "font/woff2" "woff2";

    HTML "text/html" "html";
    XML "text/xml" "xml" ["application/xml"];
    RSS "application/rss+xml" "rss" ["text/rss"];
    ATOM "application/atom+xml" "atom";
    KML "application/vnd.google-earth.kml+xml" "kml";
    GPX "application/gpx+xml" "gpx";
    GML "application/gml+xml" "gml";
    COLLADA "model/vnd.collada+xml" "dae";
    X3D "model/x3d+xml" "x3d";
    XLIFF "application/x-xliff+xml" "xlf";
    TCX "application/vnd.garmin.tcx+xml" "tcx";
    AMF "application/x-amf" "amf";
    MODEL_3MF "application/vnd.ms-package.3dmanufacturing-3dmodel+xml" "3mf";
    XFDF "application/vnd.adobe.xfdf" "xfdf";
    OWL "application/owl+xml" "owl";
    JSON "application/json" "json";
    GEOJSON "application/geo+json" "geojson";
    NDJSON "application/x-ndjson" "ndjson";
    CSV "text/csv" "csv";
    TSV "text/tab-separated-values" "tsv";
    VCARD "text/vcard" "vcf";
    CALENDAR "text/calendar" "ics";
    SUBRIP "application/x-subrip" "srt" ["application/x-srt", "text/x-srt"];
    WEBVTT "text/vtt" "vtt";
    WARC "application/warc" "warc";
    PHP "text/x-php" "php";
    JAVASCRIPT "application/javascript" "js" ["application/x-javascript", "text/javascript"];
    PYTHON "text/x-python" "py" ["text/x-script.python", "application/x-python"];
    PERL "text/x-perl" "pl";
    LUA "text/x-lua" "lua";
    TCL "text/x-tcl" "tcl" ["application/x-tcl"];
    PLAIN "text/plain" "txt";
    UNKNOWN "application/octet-stream" "";
}
