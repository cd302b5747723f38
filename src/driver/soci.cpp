#include "base/utf8.hpp"
#include "driver/lock_pause.hpp"
#include "driver/own_socket.hpp"
#include "driver/placeholders.hpp"
#include "driver/refusal.hpp"
#include "driver/soci_backend.hpp"
#include <rowlock/driver/soci.hpp>
#include <rowlock/error.hpp>

#include <soci/soci.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rowlock::soci {
namespace {

using std::chrono::steady_clock;
using statement_backend = ::soci::details::statement_backend;

constexpr std::size_t most_kept_statements = 500;

template <typename T>
constexpr auto exchange_of =
    static_cast<::soci::details::exchange_type>(::soci::details::exchange_traits<T>::x_type);

struct free_statement {
    void operator()(statement_backend* statement) const {
        statement->clean_up();
        delete statement;
    }
};

std::string_view name_of(sql::dialect speaks) {
    switch (speaks) {
        case sql::dialect::postgresql:
            return "PostgreSQL";
        case sql::dialect::mysql:
            return "MySQL";
        case sql::dialect::sqlite:
            return "SQLite";
    }
    return "the database";
}

const backend& backend_called(const std::string& name) {
    if (name == "postgresql") return postgresql_backend();
    if (name == "mysql") return mysql_backend();
    if (name == "sqlite3") return sqlite3_backend();
    throw error{errc::invalid_url, "unknown SOCI backend; there are postgresql, mysql and sqlite3"};
}

// The texts between the parameters of a statement, and which parameter goes where.
struct pieces {
    std::vector<std::string> texts;  // one more than `order` has
    std::vector<std::size_t> order;
    std::size_t parameters = 0;
};

// SOCI would number a parameter anew wherever it repeats, and PostgreSQL would then guess a type
// for each. So this cuts the placeholders out by SOCI's own rules; rewrite_placeholders() has made
// sure that these rules read the text correctly.
pieces cut(std::string_view text, sql::dialect speaks) {
    const auto rewritten = driver::rewrite_placeholders(text, speaks, driver::spelling::colon_name);
    pieces cut;
    cut.order = rewritten.order;
    cut.parameters = rewritten.parameters;
    cut.texts.emplace_back();
    bool quoted = false;
    for (std::size_t at = 0; at < rewritten.text.size(); ++at) {
        const char c = rewritten.text[at];
        const char next = at + 1 < rewritten.text.size() ? rewritten.text[at + 1] : '\0';
        if (c == '\'') quoted = !quoted;
        if (c != ':' || quoted) {
            cut.texts.back() += c;
        } else if (next == ':' || next == '=') {
            cut.texts.back().append({c, next});
            ++at;
        } else {
            ++at;  // the p of :p1
            while (at + 1 < rewritten.text.size() && rewritten.text[at + 1] >= '0' &&
                   rewritten.text[at + 1] <= '9') {
                ++at;
            }
            cut.texts.emplace_back();
        }
    }
    return cut;
}

std::string with_dollars(const pieces& cut) {
    std::string text = cut.texts.front();
    for (std::size_t place = 0; place < cut.order.size(); ++place) {
        text += '$' + std::to_string(cut.order[place] + 1) + cut.texts[place + 1];
    }
    return text;
}

// MySQL's SOCI backend pastes parameters into the text as C strings, escaped by a rule that depends
// on the session's character set and sql_mode. A hexadecimal literal depends on neither.
void paste(std::string& text, const sql::value& parameter) {
    switch (parameter.type()) {
        case sql::value::kind::null:
            text += " NULL ";
            return;
        case sql::value::kind::integer:
            text += ' ' + std::to_string(parameter.integer()) + ' ';
            return;
        case sql::value::kind::text:
            break;
    }
    constexpr std::string_view digits = "0123456789abcdef";
    const std::string_view raw = parameter.text();
    // Bytes that are no UTF-8 can only be meant for a binary column.
    text += utf8::check(raw) == utf8::verdict::malformed ? " x'" : " _utf8mb4 x'";
    for (const char c : raw) {
        const auto byte = static_cast<unsigned char>(c);
        text += digits[byte >> 4U];
        text += digits[byte & 0xfU];
    }
    text += "' ";
}

std::string with_values(const pieces& cut, std::span<const sql::value> parameters) {
    std::string text = cut.texts.front();
    for (std::size_t place = 0; place < cut.order.size(); ++place) {
        paste(text, parameters[cut.order[place]]);
        text += cut.texts[place + 1];
    }
    return text;
}

// One statement on a session, with the buffers for its parameters and columns: what soci::statement
// is made of. soci::statement itself needs each parameter's type before it prepares, and describes
// a row's columns by types that round (BIGINT as int on SQLite, DECIMAL as double), or even by
// running the statement once more.
class exchange {
public:
    exchange(::soci::session& session, const std::string& text,
             ::soci::details::statement_type kind)
        : statement_{session.make_statement_backend()} {
        statement_->alloc();
        statement_->prepare(text, kind);
    }

    [[nodiscard]] statement_backend& statement() const noexcept { return *statement_; }

    // Sends nothing yet. `parameters` may be destroyed afterwards.
    void bind(std::span<const sql::value> parameters) {
        uses_.resize(parameters.size());
        for (std::size_t index = 0; index < parameters.size(); ++index) {
            bind(uses_[index], static_cast<int>(index) + 1, parameters[index]);
        }
    }

    // SQLite knows the columns before the statement runs. Asking the other backends runs it, and
    // execute() then does not.
    sql::result run(bool columns_from_execution) {
        const release_after_use guard{*this};
        for (use& one : uses_) one.place->pre_use(&one.indicator);
        int columns = columns_from_execution ? statement_->prepare_for_describe() : 0;
        auto state = statement_->execute(1);
        if (!columns_from_execution) columns = statement_->prepare_for_describe();
        define(static_cast<std::size_t>(columns));
        sql::result answer{static_cast<std::size_t>(columns)};
        while (state == statement_backend::ef_success) {
            append_row(answer);
            state = statement_->fetch(1);
        }
        return answer;
    }

private:
    struct use {
        std::unique_ptr<::soci::details::standard_use_type_backend> place;
        std::string text;
        long long number = 0;
        ::soci::indicator indicator = ::soci::i_null;
    };
    struct into {
        std::unique_ptr<::soci::details::standard_into_type_backend> place;
        std::string text;
        ::soci::indicator indicator = ::soci::i_null;
    };

    // The backends allocate a buffer for each parameter.
    class release_after_use {
    public:
        explicit release_after_use(exchange& of) noexcept : of_{of} {}
        release_after_use(const release_after_use&) = delete;
        release_after_use& operator=(const release_after_use&) = delete;
        ~release_after_use() {
            for (use& one : of_.uses_) one.place->clean_up();
        }

    private:
        exchange& of_;
    };

    void bind(use& to, int position, const sql::value& parameter) {
        if (to.place == nullptr) to.place.reset(statement_->make_use_type_backend());
        to.indicator = parameter.is_null() ? ::soci::i_null : ::soci::i_ok;
        if (parameter.type() == sql::value::kind::integer) {
            to.number = parameter.integer();
            to.place->bind_by_pos(position, &to.number, exchange_of<long long>, true);
        } else {
            to.text = parameter.text();
            to.place->bind_by_pos(position, &to.text, exchange_of<std::string>, true);
        }
    }

    void define(std::size_t columns) {
        if (intos_.size() == columns) return;
        intos_.clear();
        intos_.resize(columns);
        int position = 1;
        for (into& one : intos_) {
            one.place.reset(statement_->make_into_type_backend());
            one.place->define_by_pos(position, &one.text, exchange_of<std::string>);
        }
    }

    void append_row(sql::result& answer) {
        for (into& one : intos_) {
            one.place->post_fetch(true, false, &one.indicator);
            if (one.indicator == ::soci::i_null) {
                answer.append_null();
            } else {
                answer.append_text(one.text);
            }
        }
    }

    std::unique_ptr<statement_backend, free_statement> statement_;
    std::vector<use> uses_;  // never grows again: the places hold addresses
    std::vector<into> intos_;
};

class runner {
public:
    // A borrowed session.
    runner(::soci::session& session, const backend& backend)
        : session_{&session}, backend_{backend}, handle_{session.get_backend()} {}
    runner(std::unique_ptr<::soci::session> own, const backend& backend)
        : own_{std::move(own)},
          session_{own_.get()},
          backend_{backend},
          handle_{session_->get_backend()} {}
    runner(const runner&) = delete;
    runner& operator=(const runner&) = delete;
    ~runner() {
        if (in_other_process() || session_was_replaced()) {
            // The statements belong to the parent process, or to a session that is gone.
            for (auto& [id, kept] : kept_) static_cast<void>(kept.release());
            if (in_other_process()) static_cast<void>(own_.release());
            return;
        }
        // The server forgets the statements of a session that ends; do not wait for it.
        if (own_ != nullptr || !alive_) forget_all();
    }

    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) {
        begin_call(until);
        return backend_.speaks() == sql::dialect::mysql ? execute_as_text(what, parameters)
                                                        : execute_prepared(what, parameters, until);
    }

    sql::result query(std::string_view text, sql::deadline until) {
        begin_call(until);
        const std::string plain = plain_text(text);
        return attempt(until, [&] {
            exchange once{*session_, plain, ::soci::details::st_one_time_query};
            return run(once, plain);
        });
    }

    // Excludes what connecting cost.
    void start_counting() noexcept { round_trips_ = 0; }

    [[nodiscard]] sql::dialect speaks() const noexcept { return backend_.speaks(); }
    [[nodiscard]] bool alive() const noexcept { return alive_; }
    [[nodiscard]] sql::transaction_state transaction() const noexcept {
        if (!alive_ || in_other_process() || session_was_replaced()) {
            return sql::transaction_state::unknown;
        }
        return backend_.transaction(*session_);
    }
    [[nodiscard]] std::uint64_t round_trips() const noexcept { return round_trips_; }

private:
    [[nodiscard]] bool in_other_process() const noexcept { return ::getpid() != process_; }
    [[nodiscard]] bool session_was_replaced() const noexcept {
        return session_->get_backend() != handle_;
    }

    void begin_call(sql::deadline until) {
        if (in_other_process()) {
            throw error{errc::wrong_process,
                        "a SOCI session cannot be used in a forked child; connect anew"};
        }
        if (session_was_replaced()) alive_ = false;
        if (!alive_) throw driver::already_dead();
        backend_.require_suitable(*session_);  // its owner may have changed it since
        if (steady_clock::now() >= until) throw driver::too_late();
    }

    // SOCI looks for parameters in any text.
    [[nodiscard]] std::string plain_text(std::string_view text) const {
        if (speaks() == sql::dialect::sqlite) return std::string{text};
        const auto rewritten =
            driver::rewrite_placeholders(text, speaks(), driver::spelling::colon_name);
        rewritten.require_parameters(0);
        return rewritten.text;
    }

    sql::result execute_as_text(const sql::statement& what,
                                std::span<const sql::value> parameters) {
        auto found = cut_.find(what.id());
        if (found == cut_.end()) {
            if (cut_.size() >= most_kept_statements) cut_.erase(cut_.begin());
            found = cut_.emplace(what.id(), cut(what.text(), speaks())).first;
        }
        require_parameters(found->second.parameters, parameters.size());
        const std::string text = with_values(found->second, parameters);
        return attempt({}, [&] {
            exchange once{*session_, text, ::soci::details::st_one_time_query};
            return run(once, what.text());
        });
    }

    sql::result execute_prepared(const sql::statement& what, std::span<const sql::value> parameters,
                                 sql::deadline until) {
        refuse_nul(parameters);
        const auto once = [&] {
            return attempt(
                until,
                [&] {
                    exchange& kept = keep(what, parameters.size());
                    kept.bind(parameters);
                    return run(kept, what.text());
                },
                what.id());
        };
        try {
            return once();
        } catch (const error& first) {
            // Unknown since DEALLOCATE ALL or DISCARD ALL; or its table has changed since.
            if (first.sqlstate() != "26000" && first.sqlstate() != "0A000") throw;
            drop(what.id());
            try {
                return once();
            } catch (const error& second) {
                if (second.sqlstate() != "25P02") throw;
            }
            throw;  // the first failure has ended the transaction
        }
    }

    // PostgreSQL has no NUL in text, and SOCI would cut the text there.
    void refuse_nul(std::span<const sql::value> parameters) const {
        if (speaks() != sql::dialect::postgresql) return;
        for (const sql::value& one : parameters) {
            if (one.text().find('\0') == std::string_view::npos) continue;
            throw error{errc::invalid_options,
                        "a text parameter holds a NUL byte, which PostgreSQL cannot store"};
        }
    }

    static void require_parameters(std::size_t wanted, std::size_t given) {
        driver::rewritten count;
        count.parameters = wanted;
        count.require_parameters(given);
    }

    struct kept_statement {
        exchange exchanged;
        std::size_t parameters;
    };

    exchange& keep(const sql::statement& what, std::size_t given) {
        if (const auto found = kept_.find(what.id()); found != kept_.end()) {
            require_parameters(found->second->parameters, given);
            return found->second->exchanged;
        }
        const auto [text, parameters] = prepared_text(what.text());
        require_parameters(parameters, given);
        if (kept_.size() >= most_kept_statements) kept_.erase(kept_.begin());
        if (speaks() == sql::dialect::postgresql) ++round_trips_;
        auto made = std::make_unique<kept_statement>(kept_statement{
            exchange{*session_, text, ::soci::details::st_repeatable_query}, parameters});
        return kept_.emplace(what.id(), std::move(made)).first->second->exchanged;
    }

    [[nodiscard]] std::pair<std::string, std::size_t> prepared_text(std::string_view text) const {
        if (speaks() == sql::dialect::sqlite) {
            auto rewritten =
                driver::rewrite_placeholders(text, speaks(), driver::spelling::question_number);
            return {std::move(rewritten.text), rewritten.parameters};
        }
        const pieces pieces = cut(text, speaks());
        return {with_dollars(pieces), pieces.parameters};
    }

    sql::result run(exchange& one, const std::string& shown) {
        ++round_trips_;
        session_->log_query(shown);  // never the pasted text: it holds values
        const std::int64_t mark = backend_.mark(*session_);
        sql::result answer = one.run(speaks() != sql::dialect::sqlite);
        answer.set_affected(backend_.affected(one.statement(), *session_, mark));
        return answer;
    }

    // Turns SOCI's exceptions into ours, and waits for SQLite's lock.
    template <typename Call>
    sql::result attempt(sql::deadline until, Call call,
                        std::optional<std::uint64_t> statement = std::nullopt) {
        for (int count = 0;; ++count) {
            try {
                return call();
            } catch (const ::soci::soci_error& thrown) {
                failure found = backend_.read(thrown, *session_);
                if (found.worth_waiting && driver::pause_for_lock(count, until)) continue;
                // A finalized statement holds no read transaction open.
                if (statement && speaks() == sql::dialect::sqlite) drop(*statement);
                if (!found.connection_lost)
                    throw driver::refusal(found.kind, std::move(found.report));
                alive_ = false;
                throw driver::broken(std::move(found.report));
            } catch (...) {
                if (statement) drop(*statement);
                throw;
            }
        }
    }

    void drop(std::uint64_t id) {
        const auto found = kept_.find(id);
        if (found == kept_.end()) return;
        backend_.forget(found->second->exchanged.statement());
        kept_.erase(found);
    }

    void forget_all() {
        for (auto& [id, kept] : kept_) backend_.forget(kept->exchanged.statement());
    }

    std::unique_ptr<::soci::session> own_;
    ::soci::session* session_;
    const backend& backend_;
    const ::soci::details::session_backend* handle_;
    pid_t process_ = ::getpid();
    bool alive_ = true;
    std::uint64_t round_trips_ = 0;
    std::unordered_map<std::uint64_t, pieces> cut_;
    std::unordered_map<std::uint64_t, std::unique_ptr<kept_statement>> kept_;
};

class own_connection final : public sql::connection {
public:
    own_connection(std::unique_ptr<::soci::session> session, const backend& backend)
        : runner_{std::move(session), backend} {}

    [[nodiscard]] sql::dialect speaks() const noexcept override { return runner_.speaks(); }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        return runner_.execute(what, parameters, until);
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        return runner_.query(text, until);
    }
    [[nodiscard]] bool alive() const noexcept override { return runner_.alive(); }
    [[nodiscard]] sql::transaction_state transaction() const noexcept override {
        return runner_.transaction();
    }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return runner_.round_trips();
    }

    runner& statements() noexcept { return runner_; }

private:
    runner runner_;
};

// As in the SQLite driver: readers and the writer do not block each other, and a grant survives a
// power cut.
void prepare_sqlite(runner& fresh, const std::string& connect_string, sql::deadline until) {
    if (fresh.query("PRAGMA journal_mode=WAL", until).text(0, 0) != "wal") {
        throw error{errc::unsupported,
                    "SQLite cannot switch this file to WAL mode; use a local file system"};
    }
    if (!value_of(connect_string, "synchronous")) fresh.query("PRAGMA synchronous=FULL", until);
    fresh.start_counting();
}

std::unique_ptr<sql::connection> connect(const backend& by, const std::string& connect_string,
                                         sql::deadline until) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(until - steady_clock::now());
    if (left.count() <= 0) {
        throw error{errc::database_unreachable, "the deadline had passed; no connection was tried"};
    }
    std::unique_ptr<::soci::session> session;
    // Only MySQL's library lets programs that are started inherit its socket.
    std::optional<driver::open_sockets> before;
    if (by.speaks() == sql::dialect::mysql) before.emplace();
    try {
        session =
            std::make_unique<::soci::session>(by.factory(), by.complete(connect_string, left));
    } catch (const ::soci::soci_error& thrown) {
        failure found = by.read(thrown);
        throw driver::refusal(found.kind, std::move(found.report));
    }
    if (before) before->close_on_exec();
    by.require_suitable(*session);
    auto made = std::make_unique<own_connection>(std::move(session), by);
    if (by.speaks() == sql::dialect::sqlite)
        prepare_sqlite(made->statements(), connect_string, until);
    return made;
}

// Takes the value off the front of `rest`, as libpq and SOCI's MySQL backend read it.
std::string take_value(std::string_view& rest) {
    constexpr std::string_view blanks = " \t\n";
    rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
    const char quote = !rest.empty() && (rest[0] == '\'' || rest[0] == '"') ? rest[0] : '\0';
    std::string text;
    std::size_t at = quote != '\0' ? 1 : 0;
    for (; at < rest.size(); ++at) {
        if (quote != '\0' ? rest[at] == quote : blanks.find(rest[at]) != std::string_view::npos)
            break;
        if (rest[at] == '\\' && at + 1 < rest.size()) ++at;
        text += rest[at];
    }
    rest.remove_prefix(std::min(at + 1, rest.size()));
    return text;
}

// The database's library would refuse them, at the first connection.
void refuse_table_names(sql::dialect speaks, std::string_view connect_string) {
    // SOCI takes all of `file?rowlock_prefix=a_` for the name of an SQLite file.
    const bool is_url =
        speaks == sql::dialect::sqlite || connect_string.find("://") != std::string_view::npos;
    for (const std::string name : {"rowlock_schema", "rowlock_prefix"}) {
        const bool in_url =
            is_url && (connect_string.find("?" + name + "=") != std::string_view::npos ||
                       connect_string.find("&" + name + "=") != std::string_view::npos);
        if (!in_url && !value_of(connect_string, name)) continue;
        throw error{errc::invalid_url, "SOCI connection string: leave out " + name +
                                           "; open(…).with_tables(…) takes it"};
    }
}

const backend& backend_of(::soci::session& session) {
    if (session.get_backend() == nullptr) {
        throw error{errc::invalid_options, "the SOCI session is not open"};
    }
    const std::string name = session.get_backend_name();
    if (name == "postgresql" || name == "mysql" || name == "sqlite3") return backend_called(name);
    throw error{errc::unsupported, "the SOCI backend " + name +
                                       " speaks none of our dialects; there are postgresql, mysql "
                                       "and sqlite3"};
}

}  // namespace

std::string backend::describe(const std::string& connect_string) const {
    std::string text{name_of(speaks())};
    text += " through SOCI";
    for (const std::string_view key : {"host", "port", "unix_socket", "dbname", "db", "service"}) {
        if (const auto found = value_of(connect_string, key)) {
            text.append(" ").append(key).append("=").append(*found);
        }
    }
    return text;
}

std::optional<std::string> value_of(std::string_view connect_string, std::string_view key) {
    constexpr std::string_view blanks = " \t\n";
    while (true) {
        const auto begin =
            std::min(connect_string.find_first_not_of(blanks), connect_string.size());
        connect_string.remove_prefix(begin);
        const auto equals = connect_string.find('=');
        if (equals == std::string_view::npos) return std::nullopt;
        std::string_view name = connect_string.substr(0, equals);
        name = name.substr(0, name.find_last_not_of(blanks) + 1);
        connect_string.remove_prefix(equals + 1);
        std::string text = take_value(connect_string);
        if (name == key) return text;
    }
}

sql::connection_source open(const std::string& backend_name, const std::string& connect_string) {
    const backend& by = backend_called(backend_name);
    refuse_table_names(by.speaks(), connect_string);
    by.require_usable(connect_string);
    auto connect_to = [&by, connect_string](sql::deadline until) {
        return connect(by, connect_string, until);
    };
    return {by.speaks(), std::move(connect_to), by.describe(connect_string)};
}

class connection_ref::statements final : public runner {
public:
    using runner::runner;
};

connection_ref::connection_ref(::soci::session& handle) {
    const backend& by = backend_of(handle);
    by.require_suitable(handle);
    statements_ = std::make_unique<statements>(handle, by);
}

connection_ref::~connection_ref() {
    put_settings_back();
}

sql::dialect connection_ref::speaks() const noexcept {
    return statements_->speaks();
}

sql::result connection_ref::execute(const sql::statement& what,
                                    std::span<const sql::value> parameters, sql::deadline until) {
    return statements_->execute(what, parameters, until);
}

sql::result connection_ref::query(std::string_view text, sql::deadline until) {
    return statements_->query(text, until);
}

sql::transaction_state connection_ref::transaction() const noexcept {
    return statements_->transaction();
}

bool connection_ref::alive() const noexcept {
    return statements_->alive();
}

std::uint64_t connection_ref::round_trips() const noexcept {
    return statements_->round_trips();
}

}  // namespace rowlock::soci
