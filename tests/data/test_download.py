import contextlib
import errno
import io
import shutil
import tarfile
from types import SimpleNamespace

import pytest

from ratenorm.data import get
from ratenorm.data import transfer as transfer_module
from ratenorm.data.cifar import read_cifar
from ratenorm.data.download import fetch
from ratenorm.data.extract import extract
from ratenorm.data.files import check_files
from ratenorm.data.transfer import Patience
from ratenorm.errors import DataError, UsageError

IMPATIENT = Patience(timeout=2.0, tries=2, pause=0.01)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture
def run(tiny, server, root):
    """Fetch the tiny set from the local server; by default the archive served is the one expected."""
    behaviour, url = server
    content = behaviour.content = tiny.archive()

    def call(expected=content, address=url, **options):
        options = {"progress": False, "patience": IMPATIENT, **options}
        return fetch(tiny.spec, tiny.archive_spec(expected), root, address, **options)

    return call


def leftovers(root):
    return sorted(path.name for path in root.iterdir())


def member(name, kind=tarfile.REGTYPE, target="", size=0):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


class TestDownload:
    def test_plain(self, run, tiny, root):
        assert run() == root / "tiny-bin"
        assert len(read_cifar(tiny.spec, "train", root)) == 6
        assert leftovers(root) == ["tiny-bin"], "neither archive nor temporary folder stays behind"
        assert (root / "tiny-bin").stat().st_mode & 0o777 == 0o755

    def test_complete_set_is_left_alone(self, run, tiny, root, server):
        tiny.write(root)
        (root / "tiny-bin" / "mine.txt").write_text("kept")
        assert run() == root / "tiny-bin"
        assert server[0].requests == []
        assert (root / "tiny-bin" / "mine.txt").read_text() == "kept"

    def test_damaged_set_is_set_aside_not_overwritten(self, run, tiny, root):
        folder = tiny.write(root)
        (folder / "b.bin").write_bytes(b"half")
        run()
        assert check_files(tiny.spec, root).complete
        assert (root / "tiny-bin.damaged-1" / "b.bin").read_bytes() == b"half"
        (folder / "b.bin").unlink()
        run()
        assert leftovers(root) == ["tiny-bin", "tiny-bin.damaged-1", "tiny-bin.damaged-2"]

    def test_later_damage_is_found_by_the_recorded_checksums(self, run, tiny, root):
        run()
        path = root / "tiny-bin" / "b.bin"  # not pinned in the spec
        content = bytearray(path.read_bytes())
        content[7] ^= 255
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"b\.bin is damaged: sha256"):
            read_cifar(tiny.spec, "train", root)

    def test_progress_bar_counts_the_bytes(self, run, capsys):
        run(progress=True)
        assert "tiny.tar.gz: 100%" in capsys.readouterr().err

    def test_mnist_needs_no_download(self, tmp_path):
        assert (get("mnist", tmp_path) / "LICENSE.txt").is_file()
        assert list(tmp_path.iterdir()) == []

    def test_embedded_damage_is_reported(self, monkeypatch, tmp_path):
        monkeypatch.setattr("ratenorm.data.mnist_files.embedded_folder", lambda: tmp_path)
        with pytest.raises(DataError, match="reinstall the package"):
            get("mnist")

    def test_get_uses_the_root_and_url(self, tmp_path, server):
        behaviour, url = server
        behaviour.content = b"a login page"
        with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz has 170052171 bytes.* offers 12"):
            get("cifar10", tmp_path, url, progress=False, patience=IMPATIENT)

    @pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://host/x", "x.tar.gz"])
    def test_other_schemes_are_refused(self, run, address):
        with pytest.raises(UsageError, match="only http:// and https://"):
            run(address=address)


class TestBrokenConnections:
    def test_cut_connection_is_resumed(self, run, server, root):
        server[0].cut_after = [100, 50]
        run()
        assert server[0].requests == [None, "bytes=100-", "bytes=150-"]
        assert leftovers(root) == ["tiny-bin"]

    def test_second_run_resumes_the_first(self, run, server, root):
        server[0].cut_after = [100, 0, 0]
        with pytest.raises(DataError, match=r"failed 2 times in a row.* 100 of \d+ bytes are kept in .*\.part"):
            run()
        assert (root / "tiny.tar.gz.part").stat().st_size == 100
        run()
        assert server[0].requests[-1] == "bytes=100-"

    def test_server_that_ignores_range_starts_over(self, run, server):
        server[0].ranges = False
        server[0].cut_after = [100]
        run()
        assert server[0].requests == [None, "bytes=100-"]

    def test_starting_over_forgets_what_was_there(self, run, server, root):
        server[0].ranges = False
        server[0].cut_after = [100, 50]
        with pytest.raises(DataError, match="50 of"):
            run(patience=Patience(timeout=2.0, tries=1, pause=0.0))
        assert (root / "tiny.tar.gz.part").read_bytes() == server[0].content[:50]

    def test_only_tries_without_a_byte_count(self, run, server):
        server[0].cut_after = [100, 0, 50, 0]
        run()
        assert len(server[0].requests) == 5

    def test_body_without_length_is_read_to_its_size_only(self, run, server, tiny):
        expected = server[0].content
        server[0].send_length = False
        server[0].content = expected + b"more" * 1000
        run(expected=expected)

    def test_complete_part_needs_no_request(self, run, server, root):
        root.mkdir()
        (root / "tiny.tar.gz.part").write_bytes(server[0].content)
        run()
        assert server[0].requests == []

    def test_overlong_part_starts_over(self, run, server, root):
        root.mkdir()
        (root / "tiny.tar.gz.part").write_bytes(server[0].content + b"x")
        run()
        assert server[0].requests == [None]

    def test_false_content_range(self, run, server, root):
        root.mkdir()
        (root / "tiny.tar.gz.part").write_bytes(server[0].content[:10])
        server[0].content_range = "bytes 20-30/40"
        with pytest.raises(DataError, match="bytes from 10 on were asked for, the server sent 'bytes 20-30/40'"):
            run()

    def test_server_errors_are_retried(self, run, server):
        server[0].statuses = [503]
        run()
        assert len(server[0].requests) == 2

    def test_not_found_is_not_retried(self, run, server):
        server[0].statuses = [404, 404]
        with pytest.raises(DataError, match=r"the server answered 404 Not Found.*--url"):
            run()
        assert len(server[0].requests) == 1

    def test_nobody_listens(self, run):
        with pytest.raises(DataError, match=r"failed 2 times in a row .*refused"):
            run(address="http://127.0.0.1:9/tiny.tar.gz")

    def test_silent_server_times_out(self, run, monkeypatch):
        def silent(request, timeout):
            assert timeout == 2.0
            raise TimeoutError("timed out")

        monkeypatch.setattr(transfer_module.urllib.request, "urlopen", silent)
        with pytest.raises(DataError, match="TimeoutError: timed out"):
            run()

    def test_pause_doubles(self, run, server, monkeypatch):
        pauses = []
        monkeypatch.setattr(transfer_module.time, "sleep", pauses.append)
        server[0].statuses = [500] * 4
        with pytest.raises(DataError, match="HTTP 500"):
            run(patience=Patience(timeout=2.0, tries=4, pause=0.5))
        assert pauses == [0.5, 1.0, 2.0]


class TestWrongBytesAndNoSpace:
    def test_wrong_bytes_are_set_aside(self, run, server, root, tiny):
        expected = server[0].content
        wrong = server[0].content = bytes(len(expected))
        with pytest.raises(DataError) as caught:
            run(expected=expected)
        assert f"sha256 {tiny.archive_spec(expected).sha256} was expected" in str(caught.value)
        assert f"found {tiny.archive_spec(wrong).sha256}" in str(caught.value)
        assert leftovers(root) == ["tiny.tar.gz.wrong-1"]
        server[0].content = expected
        run(expected=expected)
        assert leftovers(root) == ["tiny-bin", "tiny.tar.gz.wrong-1"]

    def test_space_is_checked_before_the_first_request(self, run, server, monkeypatch):
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
        with pytest.raises(DataError, match=r"no space on the disk of .*: \d+ bytes are needed.*1000 are free"):
            run()
        assert server[0].requests == []

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT], ids=["disk full", "quota"])
    def test_disk_full_on_the_way_keeps_the_part(self, run, root, monkeypatch, number):
        def copy_a_little(response, out, left, bar):
            out.write(response.read(60))
            raise OSError(number, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(transfer_module, "_copy", copy_a_little)
            with pytest.raises(DataError, match=r"no space left on the disk.*kept in .*tiny\.tar\.gz\.part"):
                run()
        assert (root / "tiny.tar.gz.part").stat().st_size == 60
        run()
        assert leftovers(root) == ["tiny-bin"]

    def test_disk_full_while_unpacking_leaves_no_half_set(self, run, root, monkeypatch):
        def full(tar, info, path):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr("ratenorm.data.extract._write", full)
            with pytest.raises(DataError, match="no space left"):
                run()
        assert leftovers(root) == ["tiny.tar.gz.part"]
        run()

    def test_root_that_cannot_be_made(self, run, root):
        root.write_text("a file")
        with pytest.raises(DataError, match=r"writing under .* failed .*--root"):
            run()


class TestArchives:
    @pytest.mark.parametrize(
        ("info", "message"),
        [
            (member("../evil.txt"), "leads outside"),
            (member("tiny-bin/../../evil.txt"), "leads outside"),
            (member("/evil.txt"), "leads outside"),
            (member("tiny-bin\\..\\evil.txt"), "leads outside"),
            (member("../evil", tarfile.DIRTYPE), "leads outside"),
            (member("tiny-bin/link", tarfile.SYMTYPE, "/etc/passwd"), "a link or a device"),
            (member("tiny-bin/a.bin", tarfile.LNKTYPE, "../evil"), "a link or a device"),
            (member("tiny-bin/device", tarfile.CHRTYPE), "a link or a device"),
            (member("tiny-bin/pipe", tarfile.FIFOTYPE), "a link or a device"),
        ],
        ids=[
            "up",
            "down and up",
            "absolute",
            "backslash",
            "folder",
            "symlink",
            "hard link",
            "device",
            "pipe",
        ],
    )
    def test_dangerous_member_refuses_the_archive(self, run, server, root, tiny, info, message):
        content = server[0].content = tiny.archive((info, b""))
        with pytest.raises(DataError, match=message):
            run(expected=content)
        assert leftovers(root) == ["tiny.tar.gz.part"]
        assert leftovers(root.parent) == ["root"]

    def test_wrong_member_size(self, tiny, tmp_path):
        contents = {**tiny.contents, "b.bin": tiny.contents["b.bin"] + b"x"}
        with pytest.raises(DataError, match=r"147 bytes were expected for 'tiny-bin/b.bin', found 148"):
            unpack(tiny, tmp_path, tiny.archive(contents=contents))

    def test_oversized_text(self, tiny, tmp_path):
        contents = {**tiny.contents, "names.txt": bytes(65537)}
        with pytest.raises(DataError, match="at most 65536 bytes were expected"):
            unpack(tiny, tmp_path, tiny.archive(contents=contents))

    def test_bomb_in_a_member_that_is_not_needed(self, tiny, tmp_path):
        size = 8 * 2**20
        with pytest.raises(DataError, match=r"unpacks to more than the \d+ bytes"):
            unpack(tiny, tmp_path, tiny.archive((member("tiny-bin/readme.html", size=size), bytes(size))))

    def test_read_me_is_not_unpacked(self, tiny, tmp_path):
        extra = (member("tiny-bin/readme.html", size=4), b"read")
        folder = unpack(tiny, tmp_path, tiny.archive((member("tiny-bin", tarfile.DIRTYPE), b""), extra))
        assert leftovers(folder) == ["SHA256SUMS", "a.bin", "b.bin", "names.txt", "test.bin"]

    def test_member_twice(self, tiny, tmp_path):
        extra = (member("tiny-bin/a.bin", size=147), tiny.contents["a.bin"])
        with pytest.raises(DataError, match=r"holds a\.bin twice"):
            unpack(tiny, tmp_path, tiny.archive(extra))

    def test_missing_member(self, tiny, tmp_path):
        contents = {name: content for name, content in tiny.contents.items() if name != "test.bin"}
        with pytest.raises(DataError, match=r"lacks test\.bin"):
            unpack(tiny, tmp_path, tiny.archive(contents=contents))

    def test_same_name_in_another_folder_does_not_count(self, tiny, tmp_path):
        contents = {name: content for name, content in tiny.contents.items() if name != "test.bin"}
        extra = (member("other/test.bin", size=196), tiny.contents["test.bin"])
        with pytest.raises(DataError, match=r"lacks test\.bin"):
            unpack(tiny, tmp_path, tiny.archive(extra, contents=contents))

    @pytest.mark.parametrize("keep", [0, 5, 60, 300, -4])
    def test_truncated_archive(self, tiny, tmp_path, keep):
        with pytest.raises(DataError, match=r"truncated or damaged|lacks"):
            unpack(tiny, tmp_path, tiny.archive()[:keep])

    @pytest.mark.parametrize("content", [b"<html>no</html>", io.BytesIO(bytes(2000)).getvalue()])
    def test_not_an_archive(self, tiny, tmp_path, content):
        with pytest.raises(DataError, match="truncated or damaged"):
            unpack(tiny, tmp_path, content)

    def test_every_flipped_byte_gives_the_set_or_a_data_error(self, tiny, tmp_path):
        whole = tiny.archive()
        for position in range(0, len(whole), 7):
            content = bytearray(whole)
            content[position] ^= 0x55
            folder = tmp_path / str(position)
            folder.mkdir()
            with contextlib.suppress(DataError):
                unpack(tiny, folder, bytes(content))


def unpack(tiny, folder, content):
    archive = folder / "tiny.tar.gz"
    archive.write_bytes(content)
    target = folder / "out"
    target.mkdir()
    extract(tiny.spec, archive, target)
    return target
