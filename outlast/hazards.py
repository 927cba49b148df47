"""What a hook must not use, by qualified name, and what to use instead: the table behind ``outlast check``."""

from __future__ import annotations

import re

EFFECT = "do it in a @side_effect function"
CLOCK = "use ctx.now()"
RANDOM = "use ctx.random"
AT_IMPORT = "read it when the module is imported, or in a @side_effect function"

_PATH_METHODS = (
    "absolute|chmod|cwd|exists|expanduser|glob|group|hardlink_to|home|is_block_device|is_char_device|is_dir|is_fifo|"
    "is_file|is_mount|is_socket|is_symlink|iterdir|lchmod|lstat|mkdir|open|owner|read_bytes|read_text|readlink|rename|"
    "replace|resolve|rglob|rmdir|samefile|stat|symlink_to|touch|unlink|walk|write_bytes|write_text"
)
_CLIENTS = (
    "aiobotocore|aiohttp|aioboto3|anthropic|asyncpg|boto3|botocore|elasticsearch|ftplib|google\\.cloud|google\\.genai|"
    "grpc|http\\.client|http\\.server|httpx|imaplib|kafka|motor|mysql|openai|paramiko|pika|poplib|psycopg|psycopg2|"
    "pymongo|pymysql|redis|requests|select|selectors|smtplib|socket|socketserver|sqlalchemy|ssl|telnetlib|"
    "urllib\\.request|urllib3|webbrowser|websocket|websockets|xmlrpc"
)

_RULES: tuple[tuple[str, str], ...] = (
    (r"time\.sleep", "use await ctx.sleep(seconds)"),
    (r"time\.(?!struct_time|strptime)\w+", CLOCK),
    (r"datetime\.(datetime\.(now|utcnow|today)|date\.today)", CLOCK),
    (r"pendulum\.(now|today|yesterday|tomorrow)|arrow\.(now|utcnow)", CLOCK),
    (r"random\.(Random\.)?(?!Random$|SystemRandom$)\w+", RANDOM),
    (r"random\.(Random|SystemRandom)", RANDOM),
    (r"secrets\.\w+|os\.urandom|os\.getrandom|numpy\.random(\.\w+)*", RANDOM),
    (r"uuid\.(uuid[1-24678]|getnode)", "use ctx.uuid()"),
    (r"os\.(environb?|_Environ|getenvb?|putenv|unsetenv|getcwdb?|getpid|getppid|getlogin|uname|cpu_count)", AT_IMPORT),
    (r"(platform|getpass|locale|pwd|sysconfig)\.\w+|socket\.get(hostname|fqdn)|sys\.(argv|platform|flags)", AT_IMPORT),
    (r"(builtins|io|_io|codecs|gzip|bz2|lzma|tarfile|zipfile)\.open|zipfile\.ZipFile|tarfile\.TarFile", EFFECT),
    (rf"pathlib\.(\w*Path|PathBase)\.({_PATH_METHODS})", EFFECT),
    (r"os\.path\.(exists|lexists|getsize|get[acm]time|is(file|dir|link|mount|abs)|samefile|realpath|abspath|expanduser)"
     r"|(posixpath|ntpath|genericpath)\.(exists|lexists|getsize|get[acm]time|is(file|dir|link|mount)|samefile|realpath"
     r"|abspath|expanduser)", EFFECT),
    (r"os\.(?!path|fspath|PathLike|sep|linesep|name|fsencode|fsdecode|strerror)\w+", EFFECT),
    (r"(shutil|tempfile|glob|fileinput|mmap|shelve|dbm|_?sqlite3|linecache|pickle\.(load|dump)$)(\.\w+)*", EFFECT),
    (r"subprocess\.\w+|pty\.\w+|asyncio\.subprocess\.\w+|asyncio\.create_subprocess_\w+", EFFECT),
    (rf"_?({_CLIENTS})(\.\w+)*", EFFECT),
    (r"asyncio\.(streams\.)?(open_connection|start_server|open_unix_connection)", EFFECT),
    (r"asyncio\.(tasks\.)?(wait|as_completed)", "use asyncio.gather(), whose results are in a fixed order"),
    (r"asyncio\.(threads\.)?to_thread|(_?thread|threading|multiprocessing|concurrent\.futures)(\.\w+)*",
     f"use await and asyncio.gather(); what blocks: {EFFECT}"),
    (r"builtins\.id", "use a field of the value, or ctx.uuid()"),
    (r"builtins\.hash", "use a field of the value, or hashlib"),
    (r"builtins\.input", "use human_in_the_loop()"),
)  # fmt: skip
_COMPILED = tuple((re.compile(pattern), instead) for pattern, instead in _RULES)

SORTED = "use sorted(...)"
STATE = "keep it in ctx.invocation_state"


def instead_of(name: str) -> str | None:
    """What to do instead of using ``name`` (``time.time``); None where it is harmless."""
    name = re.sub(r"^(posix|nt)\.", "os.", name)
    name = re.sub(r"^pathlib\._\w+\.", "pathlib.", name)  # since Python 3.13 it is a package
    return next((instead for pattern, instead in _COMPILED if pattern.fullmatch(name)), None)
