#include "cli/doctor.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rowlock::cli {
namespace {

void check_version(examination& patient) {
    const std::string version = patient.value("select sqlite_version()");
    const std::string seen = "SQLite " + version;
    if (is_at_least(version, "3.35")) return patient.ok("library", seen);
    patient.fail("library", seen, "rowlock needs SQLite 3.35 or newer");
}

void check_durability(examination& patient) {
    const std::string journal = patient.value("pragma journal_mode");
    const std::string level = patient.value("pragma synchronous");
    const bool full = level == "2" || level == "3";
    const std::string seen =
        fmt::format("journal_mode={} synchronous={}", journal, full ? "full" : "normal");
    if (journal != "wal") {
        return patient.fail("durability", seen, "rowlock needs WAL mode; is the file writable?");
    }
    if (!full) {
        return patient.warn("durability", seen,
                            "a power cut may undo the newest grants and repeat their tokens: leave "
                            "synchronous=normal out of the URL");
    }
    patient.ok("durability", seen);
}

/// The driver refuses network file systems, so a connection means a local one.
void check_file(examination& patient) {
    const std::string path =
        patient.value("select file from pragma_database_list where name = 'main'");
    struct stat file {};
    if (stat(path.c_str(), &file) != 0) {
        return patient.fail("file", path + " cannot be looked at", "check its folder's rights");
    }
    const auto mode = static_cast<unsigned>(file.st_mode) & 0777u;
    const std::string seen = fmt::format("{} mode {:04o}, on a local file system", path, mode);
    if ((mode & 0022u) == 0) return patient.ok("file", seen);
    patient.warn(
        "file", seen,
        "others may write it and so take or free any lock: chmod go-w, unless they should");
}

void check_integrity(examination& patient) {
    const std::string answer = patient.value("pragma quick_check(1)");
    if (answer == "ok") return patient.ok("integrity", "ok");
    patient.fail("integrity", answer, "the file is damaged: restore it from a backup");
}

}  // namespace

void examine_sqlite(examination& patient) {
    patient.look_at("library", [&] { check_version(patient); });
    patient.look_at("file", [&] { check_file(patient); });
    patient.look_at("durability", [&] { check_durability(patient); });
    patient.try_out("integrity", [&] { check_integrity(patient); });
    patient.ok("reach", "one machine: a SQLite file locks nothing across hosts");
    report_strategies(patient, {.lease = "exclusive; waiters are woken",
                                .fence = "by the file's one writer, until the commit",
                                .row_lock = "of the whole file, until the commit",
                                .advisory_lock = "refused: SQLite has none",
                                .version = "conditional updates"});
}

}  // namespace rowlock::cli
