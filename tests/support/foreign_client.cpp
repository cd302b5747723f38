#include "support/foreign_client.hpp"

#include "base/identity.hpp"
#include "base/sha256.hpp"
#include <rowlock/error.hpp>

#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace support::foreign {

using rowlock::sql::dialect;
using rowlock::sql::result;
using rowlock::sql::value;

namespace {

/// The sections of a file, by name, without their comments.
void read_sections(const std::string& text, const std::string& kind,
                   std::map<std::string, std::string, std::less<>>& into) {
    std::istringstream lines{text};
    std::map<std::string, std::string, std::less<>> found;
    std::string* section = nullptr;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("-- statement ") || line.starts_with("-- fragment ")) {
            section = line.starts_with("-- " + kind + " ") ? &found[line.substr(kind.size() + 4)]
                                                           : nullptr;
        } else if (section != nullptr && !line.starts_with("--")) {
            *section += line + "\n";
        }
    }
    into.merge(found);  // a section that is there already stays
}

std::string without_blank_lines_around(const std::string& text) {
    const auto first = text.find_first_not_of('\n');
    return first == std::string::npos ? ""
                                      : text.substr(first, text.find_last_not_of('\n') + 1 - first);
}

}  // namespace

std::string published(const std::string& file) {
    std::ifstream in{ROWLOCK_PROTOCOL_FOLDER "/" + file};
    if (!in) throw std::runtime_error{"docs/protocol/" + file + " is missing"};
    return {std::istreambuf_iterator<char>{in}, {}};
}

statements::statements(dialect speaks, std::string prefix) : prefix_{std::move(prefix)} {
    std::vector<std::string> files{std::string{to_string(speaks)} + ".sql"};
    if (speaks != dialect::postgresql) files.emplace_back("common.sql");
    for (const auto& file : files) {
        const auto text = published(file);
        read_sections(text, "statement", statements_);
        read_sections(text, "fragment", fragments_);
    }
}

std::string statements::fill_in(std::string text) const {
    for (auto open = text.find('{'); open != std::string::npos; open = text.find('{', open)) {
        const auto close = text.find('}', open);
        const auto name = text.substr(open + 1, close - open - 1);
        text.replace(open, close - open + 1,
                     without_blank_lines_around(fragments_.at(std::string{name})));
    }
    static const std::regex tables{"rowlock_(session|lock|ticket|hold|token_floor|migration)\\b"};
    return std::regex_replace(text, tables, prefix_ + "$1");
}

std::string statements::text(std::string_view name) const {
    const auto found = statements_.find(name);
    if (found == statements_.end()) {
        throw std::invalid_argument{"docs/protocol has no statement " + std::string{name}};
    }
    return fill_in(without_blank_lines_around(found->second));
}

std::vector<std::string> statements::names() const {
    std::vector<std::string> all;
    for (const auto& [name, text] : statements_) all.push_back(name);
    return all;
}

void statements::replace(std::string_view name, std::string_view part, std::string_view by) {
    auto& text = statements_.find(name)->second;
    const auto at = text.find(part);
    if (at == std::string::npos || text.find(part, at + 1) != std::string::npos) {
        throw std::invalid_argument{std::string{name} + " does not have " + std::string{part}};
    }
    text.replace(at, part.size(), by);
}

std::optional<std::string> identity_of(const std::map<std::string, std::string>& facts) {
    const auto fact = [&](const char* name) {
        const auto found = facts.find(name);
        return found == facts.end() ? std::string{} : found->second;
    };
    const auto provider = fact("wsrep_provider");
    if (fact("wsrep_on") == "ON" && !provider.empty() && provider != "none") return std::nullopt;
    if (!fact("group_replication_group_name").empty()) return std::nullopt;
    const bool mariadb = fact("version").find("MariaDB") != std::string::npos;
    return (mariadb ? "mariadb:" + fact("server_uid") : "mysql:" + fact("server_uuid")) + ":" +
           fact("server_id");
}

std::string proved(const std::string& words, const std::string& secret) {
    constexpr std::size_t half = 16;
    const auto digest = rowlock::sha256(secret + words);
    std::string text = words + " ";
    for (std::size_t i = 0; i < half; ++i) {
        text += "0123456789abcdef"[digest[i] >> 4];
        text += "0123456789abcdef"[digest[i] & 15];
    }
    return text;
}

std::string grant_message(std::int64_t grant_id, std::int64_t token, const std::string& secret) {
    return proved(std::to_string(grant_id) + " " + std::to_string(token) + " 0", secret);
}

std::string datagram_name(std::int64_t wake_address) {
    return std::string(1, '\0') + "rowlock/" + std::to_string(wake_address);
}

bool post(std::int64_t wake_address, const std::string& message) {
    const auto name = datagram_name(wake_address);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    const int from = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const auto sent = ::sendto(from, message.data(), message.size(), MSG_DONTWAIT,
                               reinterpret_cast<const sockaddr*>(&to), size);
    ::close(from);
    return sent == static_cast<ssize_t>(message.size());
}

client::client(lock_database& database, std::chrono::microseconds ttl)
    : speaks_{database.speaks()},
      sql_{database.speaks(), database.prefix()},
      db_{database.source().connect(soon())},
      session_{rowlock::base::random_id()} {
    set_up();
    check_schema();
    server_ = ask_server();
    const auto open = [&] {
        return change("open_session",
                      {session_, "random:" + std::to_string(session_), "elsewhere", ::getpid(),
                       "foreign", ttl.count(), 0, "", nullptr, server_}) == 1;
    };
    if (open()) return;
    if (speaks_ != dialect::sqlite) change("meet_server", {server_});
    if (!open()) throw std::runtime_error{"the token floor has no row"};
}

/// SQLite: the driver's defaults are those of the page.
void client::set_up() {
    if (speaks_ == dialect::postgresql) {
        const auto schema = db_->query("select current_schema()", soon());
        run("setup", {schema.text(0, 0), "20000"});
    }
    if (speaks_ != dialect::mysql) return;
    bool mariadb = false;
    bool isolates = false;
    const auto rows = db_->query(sql_.text("facts"), soon());
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        mariadb = mariadb || rows.text(row, 1).find("MariaDB") != std::string_view::npos;
        isolates = isolates || rows.text(row, 0) == "innodb_snapshot_isolation";
    }
    db_->query(sql_.text(mariadb ? "setup_mariadb" : "setup_mysql"), soon());
    if (isolates) db_->query(sql_.text("setup_snapshots"), soon());
}

void client::check_schema() {
    const auto known = nlohmann::json::parse(
        published("vectors.json"))["migrations"][std::string{to_string(speaks_)}];
    const auto latest = static_cast<std::int64_t>(known.size());
    const auto rows = run("migrations", {});
    std::int64_t version = 0;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        if (rows.integer(row, 0) != ++version) throw std::runtime_error{"a migration is missing"};
        const bool differs = version <= latest && rows.text(row, 1) != known[row];
        if (differs) throw std::runtime_error{"a migration is another one"};
        if (version > latest && rows.maybe_integer(row, 2).value_or(version) > latest) {
            throw std::runtime_error{"the tables are too new"};
        }
    }
    if (version < latest) throw std::runtime_error{"the tables are too old"};
}

std::string client::ask_server() {
    if (speaks_ == dialect::sqlite) return "";
    if (speaks_ == dialect::postgresql) {
        const auto row = run("server", {});
        if (row.is_null(0, 0)) throw std::runtime_error{"a standby"};
        return std::string{row.text(0, 0)};
    }
    const auto rows = db_->query(sql_.text("facts"), soon());
    std::map<std::string, std::string> facts;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        facts.emplace(rows.text(row, 0), rows.text(row, 1));
    }
    const auto identity = identity_of(facts);
    if (!identity) throw std::runtime_error{"a cluster"};
    return *identity;
}

const rowlock::sql::statement& client::prepared(std::string_view name) {
    const auto text = sql_.text(name);
    const auto found = prepared_.find(text);
    if (found != prepared_.end()) return found->second;
    return prepared_.emplace(text, rowlock::sql::statement{text}).first->second;
}

result client::run(std::string_view name, const std::vector<value>& with) {
    return db_->execute(prepared(name), with, soon());
}

result client::run(std::string_view name, std::initializer_list<value> parameters) {
    return run(name, std::vector<value>{parameters});
}

std::int64_t client::change(std::string_view name, std::initializer_list<value> parameters) {
    try {
        return run(name, parameters).affected();
    } catch (const rowlock::error& failure) {
        if (failure.kind() != rowlock::errc::unique_violation) throw;
        return 0;
    }
}

void client::begin() {
    db_->query(speaks_ == dialect::sqlite ? "begin immediate" : "begin", soon());
}

void client::commit() {
    db_->query("commit", soon());
}

void client::roll_back() {
    db_->query("rollback", soon());
}

bool client::heartbeat(std::int64_t revision) {
    return change("heartbeat", {session_, revision}) == 1;
}

bool client::lives() {
    const auto row = run("session_state", {session_});
    return !row.empty() && row.integer(0, 0) != 0;
}

client::probed client::probe(const std::string& name) {
    const auto row = run("probe", {name, session_});
    return {.next_token = row.integer(0, 0),
            .lives = row.integer(0, 1) != 0,
            .present = row.integer(0, 2) != 0,
            .token = row.maybe_integer(0, 3).value_or(0),
            .free = row.integer(0, 4) != 0,
            .waited = row.integer(0, 5) != 0,
            .holder = row.maybe_integer(0, 6).value_or(0),
            .expired = row.integer(0, 7) != 0,
            .semaphore = row.integer(0, 9) == 2};
}

bool client::take(const std::string& name, std::int64_t grant_id, const probed& seen) {
    if (!seen.present) {
        return change("insert_lease",
                      {name, session_, grant_id, nullptr, nullptr, nullptr, seen.next_token}) == 1;
    }
    return change("take", {name, session_, grant_id, nullptr, nullptr, nullptr, seen.token,
                           seen.next_token}) == 1;
}

std::optional<std::int64_t> client::try_acquire(const std::string& name, std::int64_t grant_id) {
    for (;;) {
        const auto seen = probe(name);
        if (!seen.lives) throw std::runtime_error{"the session is over"};
        if (seen.semaphore) throw std::runtime_error{"the name of a semaphore"};
        if (seen.expired) {
            change("end_expired_session", {seen.holder});
            continue;
        }
        if (!seen.free || seen.waited) return std::nullopt;
        if (take(name, grant_id, seen)) return seen.next_token;
    }
}

void client::enqueue(const std::string& name, std::int64_t grant_id) {
    change("enqueue", {name, session_, grant_id, nullptr, nullptr, nullptr, nullptr});
}

std::optional<std::int64_t> client::poll(const std::string& name, std::int64_t grant_id) {
    for (bool served = false;; served = true) {
        const auto row = run("entry", {name, session_, grant_id});
        if (row.integer(0, 0) == 0) throw std::runtime_error{"the session is over"};
        if (row.is_null(0, 1)) {
            if (change("confirm_grant", {name, session_, grant_id}) != 1) {
                throw std::runtime_error{"the entry is gone"};
            }
            return run("find_grant", {name, session_, grant_id}).integer(0, 0);
        }
        if (row.integer(0, 8) == 2) {
            change("delete_ticket", {row.integer(0, 1), name});
            throw std::runtime_error{"the name of a semaphore"};
        }
        if (served) return std::nullopt;
        const bool ended =
            row.integer(0, 5) != 0 && change("end_expired_session", {row.integer(0, 4)}) == 1;
        if (row.integer(0, 7) != 0) change("reset_watermark", {name, row.integer(0, 1)});
        const auto next = grant_next(name);
        const bool tells = next && (next->token != 0 || ended);
        if (tells && next->session != session_) wake(*next);
    }
}

bool client::cancel(const std::string& name, std::int64_t grant_id) {
    const auto row = run("entry", {name, session_, grant_id});
    if (row.is_null(0, 1)) return false;
    return change("delete_ticket", {row.integer(0, 1), name}) == 1;
}

bool client::release(const std::string& name, std::int64_t grant_id) {
    const bool freed = change("release", {name, session_, grant_id}) == 1;
    if (const auto next = grant_next(name)) wake(*next);
    return freed;
}

std::optional<client::grant> client::grant_next(const std::string& name) {
    for (;;) {
        const auto seen = run("next_waiter", {name});
        const bool waited = !seen.is_null(0, 6);
        const bool free = seen.integer(0, 3) != 0;
        if (!free || !waited) return std::nullopt;
        grant next{.session = seen.integer(0, 7),
                   .grant_id = seen.integer(0, 8),
                   .to = {.number = seen.integer(0, 13),
                          .secret = std::string{seen.text(0, 14)},
                          .mailbox = seen.maybe_integer(0, 15)}};
        const bool takes_itself = seen.integer(0, 12) > 1 || !seen.is_null(0, 16);
        if (takes_itself) return next;
        if (seen.integer(0, 1) == 0) {
            change("restore_lease", {name});
            continue;
        }
        const auto text = [&](std::size_t column) {
            return seen.is_null(0, column) ? value{} : value{seen.text(0, column)};
        };
        begin();
        next.token = seen.integer(0, 0);
        const bool both =
            change("take", {name, next.session, next.grant_id, text(9), text(10),
                            seen.maybe_integer(0, 11), seen.integer(0, 2), next.token}) == 1 &&
            change("delete_ticket", {seen.integer(0, 6), name}) == 1;
        if (!both) {
            roll_back();
            continue;
        }
        commit();
        return next;
    }
}

bool client::wake(const grant& served) {
    if (speaks_ == dialect::postgresql) {
        const auto channel = "rowlock_" + std::to_string(served.to.number);
        const auto message = grant_message(served.grant_id, served.token, served.to.secret);
        run("notify", {channel, message});
        return true;
    }
    if (speaks_ == dialect::sqlite) return false;
    try {
        db_->query(
            "kill query (is_used_lock('rowlock_wake_" + std::to_string(served.session) + "'))",
            soon());
        return true;
    } catch (const rowlock::error&) {
        return false;  // it does not sleep
    }
}

bool client::fence(const std::string& name, std::int64_t token) {
    const auto done = run("fence", {name, session_, token});
    return speaks_ == dialect::sqlite ? done.affected() == 1 : !done.empty();
}

}  // namespace support::foreign
