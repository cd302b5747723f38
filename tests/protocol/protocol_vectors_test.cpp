// The test vectors of docs/protocol against the library's own functions, and its transcripts
// against the databases.

#include "base/sha256.hpp"
#include "lock/wakeup/hint.hpp"
#include "lock/wakeup/mailbox.hpp"
#include "schema/catalog.hpp"
#include "support/failure.hpp"
#include "support/foreign_client.hpp"
#include "support/lock_database.hpp"
#include <rowlock/advisory_lock.hpp>
#include <rowlock/client.hpp>
#include <rowlock/lease.hpp>
#include <rowlock/lock_name.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <array>
#include <cctype>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using namespace rowlock;
using nlohmann::json;
using support::kind_of;
using support::lock_database;
namespace foreign = support::foreign;

namespace {

constexpr std::array dialects{sql::dialect::postgresql, sql::dialect::mysql, sql::dialect::sqlite};

const json& vectors() {
    static const json all = json::parse(foreign::published("vectors.json"));
    return all;
}

std::int64_t number(const json& text) {
    return std::stoll(text.get<std::string>());
}

std::string bytes(const std::string& hex) {
    std::string all;
    for (std::size_t at = 0; at + 1 < hex.size(); at += 2) {
        all += static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16));
    }
    return all;
}

std::string name_of(const json& vector) {
    std::string all;
    const auto once = bytes(vector["hex"]);
    for (int i = 0; i < vector.value("times", 1); ++i) all += once;
    return all;
}

}  // namespace

TEST_CASE("the vectors of names are those that the library accepts and refuses") {
    for (const auto& each : vectors()["names"]["valid"]) {
        CAPTURE(each.dump());
        const auto name = name_of(each);
        CHECK(lock_name{name}.str() == name);
        CHECK(each.value("text", name) == name);
    }
    for (const auto& each : vectors()["names"]["refused"]) {
        CAPTURE(each.dump());
        CHECK(kind_of([&] { (void)lock_name{name_of(each)}; }) == errc::invalid_name);
    }
}

TEST_CASE(
    "the names of the vectors are different locks, the same for foreign and rowlock's clients") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        foreign::client other{database};
        client locks{database.source(), database.options()};
        std::int64_t count = 0;
        for (const auto& each : vectors()["names"]["valid"]) {
            CAPTURE(each.dump());
            const auto name = name_of(each);
            CHECK(other.try_acquire(name, ++count) == 1);
            CHECK_FALSE(locks.try_acquire(name));
            CHECK(other.run("find_grant", {name, other.session(), count}).rows() == 1);
        }
        CHECK(database.number("select count(*) from rowlock_lock") == count);
    }
}

TEST_CASE("the vectors of messages are those that the library makes, believes and drops") {
    for (const auto& each : vectors()["grant_messages"]) {
        CAPTURE(each.dump());
        const std::string secret = each["secret"];
        const std::string message = each["message"];
        const wakeup::announced_grant grant{grant_id{number(each["grant_id"])},
                                            number(each["token"]), each["asynchronous"]};
        CHECK(wakeup::encode_wakeup(grant, secret) == message);
        CHECK(wakeup::decode_wakeup(message) == grant);
        CHECK(wakeup::is_proved(message, secret));
        if (!grant.asynchronous) {
            CHECK(foreign::grant_message(number(each["grant_id"]), number(each["token"]), secret) ==
                  message);
        }
    }
    for (const auto& each : vectors()["change_messages"]) {
        CAPTURE(each.dump());
        const std::string message = each["message"];
        CHECK(wakeup::encode_look(number(each["revision"]), each["secret"].get<std::string>()) ==
              message);
        CHECK(wakeup::decode_look(message) == number(each["revision"]));
        CHECK(foreign::proved("look " + each["revision"].get<std::string>(), each["secret"]) ==
              message);
    }
    for (const auto& each : vectors()["dropped_messages"]) {
        CAPTURE(each.dump());
        const std::string message = each["message"];
        const bool known = wakeup::decode_wakeup(message) || wakeup::decode_look(message);
        CHECK_FALSE((known && wakeup::is_proved(message, each["secret"].get<std::string>())));
    }
}

TEST_CASE("the vectors of channels and of datagram sockets are where the library listens") {
    for (const auto& each : vectors()["addresses"]) {
        const auto address = number(each["wake_address"]);
        CAPTURE(address);
        CHECK(wakeup::notification_channel({.number = address}) == each["channel"]);
        CHECK(foreign::datagram_name(address) == bytes(each["datagram_hex"]));
        const wakeup::mailbox box{address};
        CHECK(foreign::post(address, "hello"));
        CHECK(box.take() == std::vector<std::string>{"hello"});
    }
}

TEST_CASE("the number of a network namespace is made as docs/protocol.md says") {
    std::ifstream file{"/proc/sys/kernel/random/boot_id"};
    const std::string boot{std::istreambuf_iterator<char>{file}, {}};
    struct stat seen {};
    REQUIRE(::stat("/proc/thread-self/ns/net", &seen) == 0);
    const auto digest =
        sha256(boot + std::to_string(seen.st_dev) + ":" + std::to_string(seen.st_ino));
    std::uint64_t first = 0;
    for (std::size_t i = 0; i < 8; ++i) first = first << 8 | digest[i];
    CHECK(wakeup::network_namespace() == static_cast<std::int64_t>(first / 2));
}

TEST_CASE("the vectors of servers are what a foreign client makes of a server's variables") {
    for (const auto& each : vectors()["servers"]) {
        CAPTURE(each.dump());
        const auto identity = foreign::identity_of(each["facts"]);
        if (each["identity"].is_null()) {
            CHECK_FALSE(identity);
        } else {
            CHECK(identity == each["identity"].get<std::string>());
        }
    }
}

TEST_CASE("the vectors name the migrations of this library, each with its checksum") {
    for (const auto which : dialects) {
        const auto& known = schema::library_catalog(which);
        const auto& published = vectors()["migrations"][std::string{to_string(which)}];
        // After a new migration docs/protocol.md is to be read again.
        REQUIRE(published.size() == known.numbered.size());
        for (const auto& each : known.numbered) {
            CAPTURE(each.title());
            CHECK(published[static_cast<std::size_t>(each.version) - 1] == each.checksum());
        }
    }
}

TEST_CASE("a foreign client refuses the tables that the library refuses") {
    struct change {
        std::string make, undo;
        bool accepted = false;
    };
    // Of the page, and so of the library.
    const auto latest_number = vectors()["migrations"]["sqlite"].size();
    const std::string latest = std::to_string(latest_number);
    const std::string next = std::to_string(latest_number + 1);
    const auto later = [&](const std::string& oldest) {
        return "insert into rowlock_migration (version, name, checksum, applied_at, "
               "oldest_library) select " +
               next + ", 'later', '0', applied_at, " + oldest +
               " from rowlock_migration where version = 1";
    };
    const std::string no_later = "delete from rowlock_migration where version = " + next;
    const auto renumber = [](const std::string& from, const std::string& to) {
        return "update rowlock_migration set version = " + to + " where version = " + from;
    };
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const std::string right =
            vectors()["migrations"][std::string{to_string(database.speaks())}][0];
        for (const auto& each :
             {change{later(latest), no_later, true}, change{later(next), no_later},
              change{later("null"), no_later},
              change{renumber(latest, "99"), renumber("99", latest)},
              change{
                  "update rowlock_migration set checksum = '0' where version = 1",
                  "update rowlock_migration set checksum = '" + right + "' where version = 1"}}) {
            CAPTURE(each.make);
            database.run(each.make);
            bool theirs = true;
            try {
                const foreign::client other{database};
            } catch (const std::runtime_error&) {
                theirs = false;
            }
            const auto ours = kind_of([&] {
                (void)client{database.source(), database.options()}.try_acquire("job");
            });
            database.run(each.undo);
            CHECK(theirs == each.accepted);
            CHECK(ours == (each.accepted ? errc{} : errc::schema_outdated));
        }
    }
}

TEST_CASE("the tables of docs/advisory-keys.md are what the library makes of names") {
    std::istringstream page{foreign::published("../advisory-keys.md")};
    int rows = 0;
    for (std::string line; std::getline(page, line);) {
        std::vector<std::string> cells;
        std::istringstream parts{line};
        for (std::string cell; std::getline(parts, cell, '|');) {
            const auto first = cell.find('`');
            const auto last = cell.rfind('`');
            const auto from = cell.find_first_not_of(' ');
            if (first != std::string::npos) {
                cells.push_back(cell.substr(first + 1, last - first - 1));
            } else if (from != std::string::npos) {
                cells.push_back(cell.substr(from, cell.find_last_not_of(' ') + 1 - from));
            }
        }
        const bool of_number = cells.size() == 3 && std::isdigit(cells[2].back()) != 0;
        const bool of_text = cells.size() == 4 && cells[3].starts_with("rowlock_");
        CAPTURE(line);
        if (of_number) {
            CHECK(std::to_string(advisory_number(cells[1], cells[0])) == cells[2]);
            ++rows;
        } else if (of_text) {
            const auto schema = cells[1] == "(none)" ? "" : cells[1];
            CHECK(advisory_text(cells[2], schema, cells[0]) == cells[3]);
            ++rows;
        }
    }
    CHECK(rows == 9);
}

TEST_CASE("docs/protocol.md names each statement of docs/protocol, and each database has it") {
    const auto page = foreign::published("../protocol.md");
    for (const auto which : dialects) {
        const foreign::statements all{which, "rowlock_"};
        for (const auto& name : all.names()) {
            CAPTURE(name);
            CHECK(page.find("`" + name + "`") != std::string::npos);
            CHECK_NOTHROW((void)all.text(name));
        }
    }
}

// --- transcripts

namespace {

/// A value as a transcript writes it.
struct literal {
    std::string text;
    bool quoted = false;
};

std::vector<literal> literals(std::string_view line) {
    std::vector<literal> all;
    for (std::size_t at = 0; at < line.size();) {
        if (line[at] == ' ' || line[at] == ',') {
            ++at;
            continue;
        }
        const bool quoted = line[at] == '\'';
        const auto from = quoted ? at + 1 : at;
        const auto end = std::min(line.find_first_of(quoted ? "'" : " ,", from), line.size());
        all.push_back({std::string{line.substr(from, end - from)}, quoted});
        at = quoted ? end + 1 : end;
    }
    return all;
}

bool matches(const sql::result& seen, std::size_t column, const literal& wanted) {
    if (!wanted.quoted && wanted.text == "_") return true;
    if (!wanted.quoted && wanted.text == "null") return seen.is_null(0, column);
    if (seen.is_null(0, column)) return false;
    if (!wanted.quoted && wanted.text == "+") return seen.integer(0, column) > 0;
    return seen.text(0, column) == wanted.text;
}

/// Plays one transcript.
class player {
public:
    explicit player(lock_database& database)
        : database_{database}, client_{database}, server_{client_.server()} {
        database.run("delete from rowlock_session");
        if (database.speaks() != sql::dialect::mysql) return;
        database.run("alter table rowlock_ticket auto_increment = 1");  // as on the others
    }

    void play(const std::string& line) {
        CAPTURE(line);
        if (line == "begin") return client_.begin();
        if (line == "commit") return client_.commit();
        if (line == "rollback") return client_.roll_back();
        if (line.starts_with("state ")) {
            database_.admin().query(client_.sql().fill_in(line.substr(6)), support::soon());
            return;
        }
        const auto arrow = line.find(" => ");
        REQUIRE(arrow != std::string::npos);
        check(run(line.substr(0, arrow)), line.substr(arrow + 4));
    }

private:
    sql::result run(const std::string& call) {
        const auto space = std::min(call.find(' '), call.size());
        const auto name = call.substr(0, space);
        const auto given = literals(std::string_view{call}.substr(space));
        std::vector<sql::value> parameters;
        for (const auto& each : given) {
            if (each.quoted) {
                parameters.emplace_back(each.text);
            } else if (each.text == "@server") {
                parameters.emplace_back(server_);
            } else if (each.text == "null") {
                parameters.emplace_back(nullptr);
            } else {
                parameters.emplace_back(std::stoll(each.text));
            }
        }
        const sql::statement what{client_.sql().text(name)};
        return client_.db().execute(what, parameters, support::soon());
    }

    static void check(const sql::result& seen, const std::string& wanted) {
        if (wanted == "none") {
            CHECK(seen.empty());
            return;
        }
        if (wanted.front() != '(') {
            CHECK(seen.affected() == std::stoll(wanted));
            return;
        }
        const auto cells = literals(std::string_view{wanted}.substr(1, wanted.size() - 2));
        REQUIRE(seen.rows() == 1);
        REQUIRE(seen.columns() == cells.size());
        for (std::size_t column = 0; column < cells.size(); ++column) {
            CAPTURE(column);
            CAPTURE(seen.text(0, column));
            CHECK(matches(seen, column, cells[column]));
        }
    }

    lock_database& database_;
    foreign::client client_;
    const std::string server_;
};

}  // namespace

TEST_CASE("the transcripts of docs/protocol read the same on every database") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        std::istringstream lines{foreign::published("transcripts.txt")};
        std::optional<lock_database> fresh;
        std::optional<player> on;
        int played = 0;
        std::string title;
        CAPTURE(title);
        for (std::string line; std::getline(lines, line);) {
            if (line.empty() || line.front() == '#') continue;
            if (line.starts_with("transcript ")) {
                on.reset();
                fresh.emplace(database.which());
                on.emplace(*fresh);
                title = line;
                ++played;
            } else {
                REQUIRE(on);
                on->play(line);
            }
        }
        CHECK(played > 5);
    }
}
