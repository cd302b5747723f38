#include "driver/postgresql_target.hpp"

#include "driver/refusal.hpp"
#include "driver/url.hpp"
#include <rowlock/error.hpp>
#include <rowlock/sql/classify.hpp>

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace rowlock::postgresql {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

struct free_conninfo {
    void operator()(PQconninfoOption* parsed) const noexcept { PQconninfoFree(parsed); }
};

const std::string* find(const settings& among, std::string_view name) {
    const auto found =
        std::ranges::find_if(among, [&](const setting& each) { return each.name == name; });
    return found == among.end() ? nullptr : &found->text;
}

std::string text_or_empty(const settings& among, std::string_view name) {
    const std::string* found = find(among, name);
    return found == nullptr ? std::string{} : *found;
}

void set_default(settings& among, const std::string& name, const std::string& text) {
    if (find(among, name) == nullptr) among.push_back({name, text});
}

std::string environment(const char* name) {
    const char* text = std::getenv(name);
    return text == nullptr ? std::string{} : std::string{text};
}

std::vector<std::string> split(const std::string& list) {
    std::vector<std::string> parts(1);
    for (const char c : list) {
        if (c == ',') {
            parts.emplace_back();
        } else {
            parts.back() += c;
        }
    }
    return parts;
}

constexpr std::string_view encode_hint =
    "; characters such as @ : / ? % in a password are written percent-encoded";

[[noreturn]] void refuse_url(std::string_view why) {
    std::string message{"the PostgreSQL URL "};
    message += why;
    message += encode_hint;
    throw error{errc::invalid_url, message};
}

bool is_url(std::string_view text) {
    return text.starts_with("postgresql://") || text.starts_with("postgres://");
}

using own_parameters = std::vector<driver::url_parameter>;

bool is_ours(std::string_view name) {
    return name.starts_with("rowlock_");
}

void add(own_parameters& to, std::string name, std::string text) {
    const bool twice = std::ranges::any_of(to, [&](const auto& each) { return each.name == name; });
    if (twice) refuse_url("has a parameter twice");
    to.push_back({std::move(name), std::move(text)});
}

// Takes our own parameters, which libpq does not know, out of a URL.
own_parameters take_ours_from_url(std::string& url) {
    const std::size_t question = url.find('?');
    if (question == std::string::npos) return {};
    own_parameters ours;
    std::string others;
    for (std::size_t at = question; at < url.size();) {
        const std::size_t end = std::min(url.find('&', at + 1), url.size());
        const std::string_view each = std::string_view{url}.substr(at + 1, end - at - 1);
        at = end;
        const std::size_t equals = std::min(each.find('='), each.size());
        std::string name = driver::percent_decoded(each.substr(0, equals));
        if (!is_ours(name)) {
            others.append(1, others.empty() ? '?' : '&').append(each);
        } else if (equals == each.size()) {
            refuse_url("has a parameter without =");
        } else {
            add(ours, std::move(name), driver::percent_decoded(each.substr(equals + 1)));
        }
    }
    url.erase(question);
    url += others;
    return ours;
}

// The same for key = 'value' pairs; quoting as in the libpq documentation, section 34.1.1.1.
own_parameters take_ours_from_pairs(std::string& pairs) {
    const auto space = [&](std::size_t at) {
        return at < pairs.size() && std::strchr(" \t\n\r\f\v", pairs[at]) != nullptr;
    };
    own_parameters ours;
    std::size_t at = 0;
    while (at < pairs.size()) {
        while (space(at)) ++at;
        const std::size_t start = at;
        while (at < pairs.size() && pairs[at] != '=' && !space(at)) ++at;
        std::string name = pairs.substr(start, at - start);
        while (space(at)) ++at;
        if (at >= pairs.size() || pairs[at] != '=') return ours;  // libpq will complain
        ++at;
        while (space(at)) ++at;
        const bool quoted = at < pairs.size() && pairs[at] == '\'';
        if (quoted) ++at;
        std::string text;
        while (at < pairs.size() && (quoted ? pairs[at] != '\'' : !space(at))) {
            if (pairs[at] == '\\' && at + 1 < pairs.size()) ++at;
            text += pairs[at++];
        }
        const bool closed = !quoted || at < pairs.size();
        if (quoted && closed) ++at;
        if (!is_ours(name)) continue;
        if (!closed) refuse_url("has a quote without its end");
        pairs.erase(start, at - start);
        at = start;
        add(ours, std::move(name), std::move(text));
    }
    return ours;
}

void apply(own_parameters ours, target& to) {
    to.tables = driver::take_table_names(ours, sql::dialect::postgresql);
    for (const driver::url_parameter& each : ours) {
        if (each.name != "rowlock_pooler") {
            throw error{errc::invalid_url,
                        "the PostgreSQL URL has an unknown parameter: of ours there are "
                        "rowlock_schema, rowlock_prefix and rowlock_pooler"};
        }
        if (each.value != "transaction" && each.value != "none") {
            throw error{errc::invalid_url,
                        "rowlock_pooler in the PostgreSQL URL must be transaction or none"};
        }
        to.transaction_pooler = each.value == "transaction";
    }
}

// Never passes on libpq's message, which quotes what it complains about.
[[noreturn]] void refuse_unparsed(std::string_view words) {
    if (words.starts_with("invalid connection option") ||
        words.starts_with("invalid URI query parameter")) {
        refuse_url("has a parameter that libpq does not know");
    }
    if (words.find("percent-encoded") != std::string_view::npos) {
        refuse_url("has a bad percent-encoding");
    }
    if (words.starts_with("missing \"=\"")) refuse_url("has a word without =");
    refuse_url("cannot be understood");
}

settings parse(const std::string& url) {
    if (url.find('\0') != std::string::npos) refuse_url("holds a NUL byte");
    char* words = nullptr;
    const std::unique_ptr<PQconninfoOption, free_conninfo> parsed{
        PQconninfoParse(url.c_str(), &words)};
    const std::unique_ptr<char, decltype(&PQfreemem)> keeper{words, PQfreemem};
    if (!parsed) refuse_unparsed(words == nullptr ? "" : words);
    settings given;
    for (const PQconninfoOption* each = parsed.get(); each->keyword != nullptr; ++each) {
        if (each->val != nullptr) given.push_back({each->keyword, each->val});
    }
    return given;
}

// With a raw / or ? in the password, its rest would be read as the database or a parameter, and
// shown. A user's name may hold an @ (user=ann@server), and so may a password.
void check_at_signs(std::string_view url) {
    const std::size_t question = std::min(url.find('?'), url.size());
    const std::size_t path = url.find('/', url.find("://") + 3);
    bool stray = url.substr(0, question).find('@', path) != std::string_view::npos;
    for (std::string_view rest = url.substr(question); !rest.empty();) {
        rest.remove_prefix(1);
        const std::string_view each = rest.substr(0, rest.find('&'));
        rest.remove_prefix(each.size());
        const bool may = each.starts_with("user=") || each.starts_with("password=");
        stray = stray || (!may && each.find('@') != std::string_view::npos);
    }
    if (stray) refuse_url("has an @ behind a / or ? (written %40 if it belongs there)");
}

// A password that was not percent-encoded spills into these; libpq would quote them.
void check_parts(const settings& given) {
    if (text_or_empty(given, "host").find('@') != std::string::npos) {
        refuse_url("has an @ in its host name");
    }
    for (const std::string& port : split(text_or_empty(given, "port"))) {
        const bool digits = std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
        if (!digits || port.size() > 5) refuse_url("has a port that is not a number");
    }
    const std::string database = text_or_empty(given, "dbname");
    if (database.find("://") != std::string::npos || database.find('=') != std::string::npos) {
        refuse_url("has a database name that looks like another URL");
    }
}

std::string describe(const settings& given) {
    std::string text = "postgresql://";
    if (const std::string user = text_or_empty(given, "user"); !user.empty()) text += user + "@";
    const std::string* named = find(given, "host");
    const std::vector<std::string> hosts =
        split(named != nullptr ? *named : text_or_empty(given, "hostaddr"));
    const std::vector<std::string> ports = split(text_or_empty(given, "port"));
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        if (i > 0) text += ",";
        const bool numeric_v6 = hosts[i].find(':') != std::string::npos;
        text += numeric_v6 ? "[" + hosts[i] + "]" : hosts[i];
        const std::string& port = ports.size() == hosts.size() ? ports[i] : ports.front();
        if (!port.empty()) text += ":" + port;
    }
    if (const std::string name = text_or_empty(given, "dbname"); !name.empty()) text += "/" + name;
    return text;
}

// libpq's asynchronous connect would wait for the first of several hosts without limit. So each
// host is tried by itself, with its share of the time.
std::vector<settings> one_set_a_host(const settings& given) {
    const std::vector<std::string> hosts = split(text_or_empty(given, "host"));
    const std::vector<std::string> addresses = split(text_or_empty(given, "hostaddr"));
    const std::vector<std::string> ports = split(text_or_empty(given, "port"));
    const std::size_t count = std::max(hosts.size(), addresses.size());
    const auto fits = [&](std::string_view name, const std::vector<std::string>& list) {
        return find(given, name) == nullptr || list.size() == count;
    };
    const bool one_port = ports.size() == 1;
    if (count == 1 || !fits("host", hosts) || !fits("hostaddr", addresses) ||
        (!one_port && !fits("port", ports))) {
        return {given};  // libpq reports the mismatch
    }
    std::vector<settings> sets(count, given);
    for (std::size_t i = 0; i < count; ++i) {
        for (setting& each : sets[i]) {
            if (each.name == "host") each.text = hosts[i];
            if (each.name == "hostaddr") each.text = addresses[i];
            if (each.name == "port" && !one_port) each.text = ports[i];
        }
    }
    return sets;
}

void add_defaults(settings& given, const options& how) {
    const bool hosts_elsewhere = find(given, "service") != nullptr ||
                                 find(given, "host") != nullptr ||
                                 find(given, "hostaddr") != nullptr;
    if (const std::string host = environment("PGHOST"); !host.empty() && !hosts_elsewhere) {
        given.push_back({"host", host});
    }
    const bool several = text_or_empty(given, "host").find(',') != std::string::npos ||
                         text_or_empty(given, "hostaddr").find(',') != std::string::npos;
    if (several && environment("PGTARGETSESSIONATTRS").empty()) {
        set_default(given, "target_session_attrs", "read-write");
    }
    set_default(given, "fallback_application_name", "rowlock");
    set_default(given, "client_encoding", "UTF8");
    set_default(given, "keepalives_idle", std::to_string(how.keepalives_idle_s));
    set_default(given, "keepalives_interval", std::to_string(how.keepalives_interval_s));
    set_default(given, "keepalives_count", std::to_string(how.keepalives_count));
    set_default(given, "tcp_user_timeout", std::to_string(how.tcp_user_timeout_ms));
}

// "FATAL:  28P01: words", as PQERRORS_VERBOSE writes it in every language.
std::string sqlstate_in(std::string_view words) {
    for (std::size_t at = words.find(":  "); at != std::string_view::npos;
         at = words.find(":  ", at + 1)) {
        const std::string_view code = words.substr(at + 3, 5);
        const bool fits = code.size() == 5 && words.substr(at + 8, 2) == ": " &&
                          std::ranges::all_of(code, [](char c) {
                              return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
                          });
        if (fits) return std::string{code};
    }
    return {};
}

// The failure in one line: without hints, source locations and passwords.
std::string words_of(const PGconn* failed, const std::vector<std::string>& secrets) {
    const std::string_view all = PQerrorMessage(failed);
    std::string words;
    for (std::size_t at = 0; at < all.size();) {
        const std::size_t end = std::min(all.find('\n', at), all.size());
        const std::string_view line = all.substr(at, end - at);
        at = end + 1;
        // Only libpq's own lines and FATAL; DETAIL, HINT and LOCATION follow a FATAL.
        if (line.empty() || line.front() == '\t' || line.starts_with("LOCATION:") ||
            line.starts_with("HINT:") || line.starts_with("DETAIL:")) {
            continue;
        }
        if (!words.empty()) words += "; ";
        words += line;
    }
    for (const std::string& secret : secrets) {
        if (!secret.empty() && words.find(secret) != std::string::npos) return {};
    }
    return words;
}

error cannot_connect(const PGconn* failed, const target& to) {
    std::string words = words_of(failed, to.secrets);
    const std::string sqlstate = sqlstate_in(words);
    if (!sqlstate.empty()) words.erase(words.find(":  " + sqlstate) + 3, sqlstate.size() + 2);
    if (PQconnectionNeedsPassword(failed) != 0) {
        return {errc::access_denied,
                "the database asks for a password: put it into the URL, PGPASSWORD or ~/.pgpass",
                {.sqlstate = sqlstate, .message = words}};
    }
    if (sqlstate == "3D000") {
        return {errc::database_unreachable,
                "there is no such database: create it or correct the URL: " + words,
                {.sqlstate = sqlstate, .message = words}};
    }
    if (words.starts_with("invalid ")) {
        return {errc::invalid_url,
                "the PostgreSQL URL has a parameter libpq cannot use: " + words,
                {.sqlstate = {}, .message = words}};
    }
    errc kind = sqlstate.empty() ? errc::database_unreachable : sql::classify_postgresql(sqlstate);
    // PgBouncer has one code for everything.
    if (sqlstate == "08P01" && words.find("no more connections allowed") != std::string::npos) {
        kind = errc::out_of_resources;
    }
    return driver::refusal(kind, {.sqlstate = sqlstate, .message = words});
}

connection_handle connect_one(const settings& given, const target& to, sql::deadline until) {
    std::vector<const char*> names;
    std::vector<const char*> texts;
    for (const setting& each : given) {
        names.push_back(each.name.c_str());
        texts.push_back(each.text.c_str());
    }
    names.push_back(nullptr);
    texts.push_back(nullptr);
    connection_handle made{PQconnectStartParams(names.data(), texts.data(), 0)};
    if (!made) throw error{errc::out_of_resources, "no memory for a connection"};
    PQsetErrorVerbosity(made.get(), PQERRORS_VERBOSE);  // the only way to a SQLSTATE here
    PQsetNoticeReceiver(
        made.get(), [](void*, const PGresult*) {}, nullptr);
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;
    if (PQstatus(made.get()) == CONNECTION_BAD) next = PGRES_POLLING_FAILED;
    while (next != PGRES_POLLING_OK) {
        if (next == PGRES_POLLING_FAILED) throw cannot_connect(made.get(), to);
        const short events = next == PGRES_POLLING_READING ? POLLIN : POLLOUT;
        if (!wait_for(PQsocket(made.get()), events, until)) {
            throw driver::not_connected();
        }
        next = PQconnectPoll(made.get());
    }
    PQsetErrorVerbosity(made.get(), PQERRORS_DEFAULT);
    PQsetnonblocking(made.get(), 1);
    return made;
}

}  // namespace

target understand(std::string url, const options& how) {
    target made;
    made.transaction_pooler = how.transaction_pooler;
    if (is_url(url)) check_at_signs(url);
    apply(is_url(url) ? take_ours_from_url(url) : take_ours_from_pairs(url), made);
    settings given = parse(url);
    check_parts(given);
    made.description = describe(given);
    for (const char* name : {"password", "sslpassword"}) {
        made.secrets.push_back(text_or_empty(given, name));
    }
    made.secrets.push_back(environment("PGPASSWORD"));
    made.connect_timeout =
        std::chrono::seconds{std::atoi(text_or_empty(given, "connect_timeout").c_str())};
    add_defaults(given, how);
    made.hosts = one_set_a_host(given);
    return made;
}

connection_handle connect(const target& to, sql::deadline until) {
    if (until <= steady_clock::now()) throw driver::not_connected();
    std::string failures;
    for (std::size_t i = 0; i < to.hosts.size(); ++i) {
        const auto now = steady_clock::now();
        sql::deadline::duration share = (until - now) / static_cast<long>(to.hosts.size() - i);
        if (to.connect_timeout > 0s) share = std::min(share, {to.connect_timeout});
        try {
            return connect_one(to.hosts[i], to, now + share);
        } catch (const error& e) {
            const bool others = i + 1 < to.hosts.size() || i > 0;
            if (!others || e.kind() != errc::database_unreachable) throw;
            if (!failures.empty()) failures += "; ";
            failures += e.server_message().empty() ? std::string{e.what()} : e.server_message();
        }
    }
    throw error{errc::database_unreachable, "none of the database's hosts will do: " + failures};
}

bool wait_for(int socket, short events, sql::deadline until) {
    for (;;) {
        const auto left = until - steady_clock::now();
        // Rounded up, so that the last wait does not spin.
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
        pollfd wanted{socket, events, 0};
        const int ready = ::poll(&wanted, 1, static_cast<int>(std::clamp<long>(ms, 0, 60'000)));
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return true;  // let libpq find out what is wrong
        if (ms <= 0) return false;
    }
}

}  // namespace rowlock::postgresql
