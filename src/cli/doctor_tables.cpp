// What `rowlock doctor` finds about the tables themselves: whether they outlive a crash, and
// whether a transaction that was forgotten keeps their rows locked.

#include "cli/blocking_view.hpp"
#include "cli/doctor.hpp"
#include "cli/rights.hpp"
#include "sql/table_names.hpp"
#include "upkeep/blocking_transactions.hpp"

#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;

/// Each table's name, as `write` makes it, with commas between.
template <typename Write>
std::string tables_of(const examination& patient, const Write& write) {
    const auto speaks = patient.connection().speaks();
    std::vector<std::string> all{"rowlock_history"};
    for (const auto& each : rights_of_a_client(speaks)) all.emplace_back(each.table);
    std::string text;
    for (const auto& each : all) {
        text += (text.empty() ? "" : ", ") +
                write(sql::qualify(each, speaks, patient.where().source.tables()));
    }
    return text;
}

/// Only letters, digits and underscores are in these names, or a quoted schema without quotes.
std::string literal(const std::string& name) {
    return "'" + name + "'";
}

void check_logged(examination& patient) {
    const auto rows = patient.query(
        fmt::format("select c.oid::pg_catalog.regclass::pg_catalog.text from pg_catalog.pg_class c "
                    "where c.oid operator(pg_catalog.=) any (array[{}]) and c.relpersistence "
                    "operator(pg_catalog.<>) 'p' order by 1",
                    tables_of(patient, [](const std::string& name) {
                        return "pg_catalog.to_regclass(" + literal(name) + ")::pg_catalog.oid";
                    })));
    if (rows.empty()) return patient.ok("tables", "logged");
    std::string names;
    std::string commands;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        names += fmt::format("{}{}", row == 0 ? "" : ", ", rows.text(row, 0));
        commands +=
            fmt::format("{}alter table {} set logged", row == 0 ? "" : "; ", rows.text(row, 0));
    }
    patient.fail(
        "tables", "unlogged: " + names,
        "a crash empties them, so locks are granted twice and tokens start again: " + commands);
}

void check_engines(examination& patient) {
    const auto rows = patient.query(
        fmt::format("select table_name, coalesce(engine, 'unknown') from information_schema.tables "
                    "where table_schema = database() and coalesce(engine, '') <> 'InnoDB' "
                    "and table_name in ({}) order by 1",
                    tables_of(patient, literal)));
    if (rows.empty()) return patient.ok("tables", "InnoDB");
    std::string names;
    std::string commands;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        names +=
            fmt::format("{}{} is {}", row == 0 ? "" : ", ", rows.text(row, 0), rows.text(row, 1));
        commands += fmt::format("{}alter table {} engine = InnoDB", row == 0 ? "" : "; ",
                                rows.text(row, 0));
    }
    patient.fail("tables", names,
                 "these have no transactions, and a crash may empty them, so locks are granted "
                 "twice and tokens start again: " +
                     commands);
}

void check_storage(examination& patient) {
    const std::string path =
        patient.value("select file from pragma_database_list where name = 'main'");
    if (path.empty()) {
        return patient.fail("tables", "in memory or in a temporary file",
                            "no other process can see them: name a file in the URL");
    }
    struct statfs where {};
    const bool in_memory = statfs(path.c_str(), &where) == 0 &&
                           (where.f_type == TMPFS_MAGIC || where.f_type == RAMFS_MAGIC);
    if (!in_memory) return patient.ok("tables", "in a file on a disk");
    patient.warn("tables", "in a file that a restart of the machine empties (tmpfs)",
                 "fencing tokens start again then: if anything outside this machine compares "
                 "them, put the file on a disk");
}

/// Those that are still there after a second: a transaction manager prepares and commits.
std::vector<detail::blocking_transaction> forgotten(examination& patient, std::string& note) {
    const auto& source = patient.where().source;
    const auto first = detail::read_prepared_transactions(source, examination::soon());
    note = first.note;
    if (first.found.empty()) return {};
    std::this_thread::sleep_for(1s);
    auto second = detail::read_prepared_transactions(source, examination::soon());
    std::erase_if(second.found, [&](const auto& each) {
        return std::ranges::find(first.found, each.gid, &detail::blocking_transaction::gid) ==
               first.found.end();
    });
    return std::move(second.found);
}

void check_prepared(examination& patient) {
    std::string note;
    const auto all = forgotten(patient, note);
    if (all.empty()) return patient.ok("prepared", note.empty() ? "none" : note);
    std::string seen;
    std::string commands;
    for (const auto& each : all) {
        seen += (seen.empty() ? "" : "; ") + description_of(each);
        commands += (commands.empty() ? "" : "; ") + each.how_to_end;
    }
    patient.warn("prepared", seen,
                 "a lock that such a transaction has fenced cannot be granted or broken until it "
                 "ends. If its transaction manager has forgotten it: " +
                     commands);
}

}  // namespace

void examine_tables(examination& patient) {
    const auto speaks = patient.connection().speaks();
    patient.look_at("tables", [&] {
        if (speaks == sql::dialect::postgresql) return check_logged(patient);
        if (speaks == sql::dialect::mysql) return check_engines(patient);
        check_storage(patient);
    });
    if (speaks == sql::dialect::sqlite) return;
    patient.look_at("prepared", [&] { check_prepared(patient); });
}

}  // namespace rowlock::cli
