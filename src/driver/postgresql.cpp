#include "driver/placeholders.hpp"
#include "driver/postgresql_encoding.hpp"
#include "driver/postgresql_target.hpp"
#include "driver/postgresql_transaction.hpp"
#include "driver/refusal.hpp"
#include <rowlock/driver/postgresql.hpp>
#include <rowlock/error.hpp>
#include <rowlock/sql/classify.hpp>
#include <rowlock/sql/notifications.hpp>

#include <fcntl.h>
#include <libpq-fe.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <future>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rowlock::postgresql {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// How long after its deadline a call may wait for the server to confirm that it was cancelled.
constexpr auto cancel_grace = 250ms;
// How long dropping what was prepared on a borrowed handle may keep the handle busy.
constexpr auto close_timeout = 1s;
// Longest name of a channel, in bytes: one less than the server's NAMEDATALEN. LISTEN would cut a
// longer one, and pg_notify() would refuse it.
constexpr std::size_t longest_channel = 63;
// A program that generates statements endlessly must not fill the server's memory with them.
constexpr std::size_t most_kept_statements = 512;
// Limit on cancels under way: one that no server answers keeps its thread until the kernel gives
// up.
constexpr int most_cancels = 8;

struct clear_result {
    void operator()(PGresult* answer) const noexcept { PQclear(answer); }
};
using answer = std::unique_ptr<PGresult, clear_result>;

// --- errors --------------------------------------------------------------------------------------

std::string first_line(std::string_view text) {
    return std::string{text.substr(0, text.find('\n'))};
}

std::string field(const PGresult* of, int code) {
    const char* text = PQresultErrorField(of, code);
    return text == nullptr ? std::string{} : std::string{text};
}

bool is_failure(const answer& each) {
    const ExecStatusType status = PQresultStatus(each.get());
    return status == PGRES_FATAL_ERROR || status == PGRES_BAD_RESPONSE;
}

error::server_report report_of(const answer& failed) {
    std::string words = field(failed.get(), PG_DIAG_MESSAGE_PRIMARY);
    if (words.empty()) words = PQresultErrorMessage(failed.get());
    while (!words.empty() && words.back() == '\n') words.pop_back();
    return {.sqlstate = field(failed.get(), PG_DIAG_SQLSTATE), .message = std::move(words)};
}

// --- one connection ------------------------------------------------------------------------------

// Text that libpq allocated.
struct free_memory {
    void operator()(void* memory) const noexcept { PQfreemem(memory); }
};
using libpq_text = std::unique_ptr<char, free_memory>;

// Talks over a handle that another object owns. It is long because the state of one PGconn is one
// state machine: statements in progress, a posted answer, prepared names and notifications all
// arrive by the same reads, and a failure in one decides what is left of the others.
class wire : public sql::notifications {
public:
    enum class ownership { ours, borrowed };

    wire(PGconn* handle, const options& how, ownership whose)
        : handle_{handle},
          pooled_{how.transaction_pooler},
          borrowed_{whose == ownership::borrowed} {
        if (handle == nullptr) throw error{errc::invalid_options, "the PostgreSQL handle is null"};
        require_utf8_database(handle);
        (void)lost_answer();
        if (whose == ownership::ours) PQsetNoticeReceiver(handle, notice, this);
    }
    wire(const wire&) = delete;
    wire& operator=(const wire&) = delete;
    ~wire() override {
        if (home_ != ::getpid()) return;
        alive_ = false;
        if (posted_) tell(nullptr, &lost_answer());
    }

    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) {
        check_usable(until);
        const auto known = statements_.find(what.id());
        if (known == statements_.end() || !known->second.prepared) drain(until);
        kept& statement = look_up(what, until);
        statement.shape.require_parameters(parameters.size());
        const wire_parameters sent{parameters};
        const non_blocking guard{handle_};
        const bool alone = transaction() == sql::transaction_state::none;
        std::vector<answer> answers = run(statement, what, sent, until);
        // Behind an undeclared pooler each try may meet another process of the server.
        for (int tries = 0; forget_if_stale(statement, answers) && alone && tries < 5; ++tries) {
            answers = run(statement, what, sent, until);
        }
        return interpret(answers);
    }

    // In pipeline mode until both answers are read: each statement ends with a synchronization of
    // its own, so that a failure ends none but itself, and each commits by itself.
    bool post(const sql::statement& what, std::span<const sql::value> parameters,
              sql::deadline until, sql::posted_answer on_answer) {
        check_usable(until);
        drain(until);
        const auto found = statements_.find(what.id());
        if (borrowed_ || found == statements_.end() || !found->second.prepared) return false;
        if (transaction() != sql::transaction_state::none) return false;
        found->second.shape.require_parameters(parameters.size());
        const wire_parameters sent{parameters};
        const non_blocking guard{handle_};
        posted_ = posted{found->first, {}, std::move(on_answer)};
        try {
            send_behind(found->second, sent);
            flush(until);
        } catch (...) {
            posted_.reset();  // the exception informs the caller
            throw;
        }
        return true;
    }

    sql::result query(std::string_view text, sql::deadline until) {
        check_usable(until);
        drain(until);
        const std::string terminated = checked(text);
        const non_blocking guard{handle_};
        require_sent(PQsendQuery(handle_, terminated.c_str()));
        return interpret(exchange(until));
    }

    [[nodiscard]] bool alive() const noexcept { return alive_; }
    [[nodiscard]] bool keeps_session_state() const noexcept { return !pooled_; }
    [[nodiscard]] sql::transaction_state transaction() const noexcept {
        // What is posted commits by itself.
        return posted_ ? sql::transaction_state::none : transaction_of(handle_);
    }
    [[nodiscard]] int socket() const noexcept { return PQsocket(handle_); }
    [[nodiscard]] std::int64_t announced_process() const noexcept { return PQbackendPID(handle_); }
    [[nodiscard]] std::uint64_t round_trips() const noexcept { return round_trips_; }

    // One round trip: LISTEN, and a query whether the channel was listened to before. Both are one
    // implicit transaction. LISTEN takes effect at its end, so the query sees the time before.
    void listen(std::string_view channel, sql::deadline until) override {
        require_listenable(channel);
        check_usable(until);
        drain(until);
        // In a transaction LISTEN would take effect with the owner's commit, or never.
        if (PQtransactionStatus(handle_) != PQTRANS_IDLE) {
            throw error{errc::invalid_options,
                        "LISTEN takes effect at the end of a transaction: end it first"};
        }
        const libpq_text quoted{PQescapeIdentifier(handle_, channel.data(), channel.size())};
        const libpq_text literal{PQescapeLiteral(handle_, channel.data(), channel.size())};
        if (!quoted || !literal) {
            throw error{errc::invalid_options, "the channel's name is not valid UTF-8"};
        }
        const std::string text =
            std::string{"listen "} + quoted.get() +
            "; select pg_catalog.count(*) from pg_catalog.pg_listening_channels() as "
            "channel(name) where name operator(pg_catalog.=) " +
            literal.get();
        const non_blocking guard{handle_};
        require_sent(PQsendQuery(handle_, text.c_str()));
        const sql::result before = interpret(exchange(until));
        listening_ = true;
        if (borrowed_ && before.integer(0, 0) == 0) unlisten_.emplace_back(quoted.get());
    }

    // libpq closes its socket when it finds the connection closed: -1 from then on.
    [[nodiscard]] int descriptor() const noexcept override { return PQsocket(handle_); }

    std::vector<sql::notification> take() override {
        if (home_ != ::getpid()) throw in_a_child();
        if (!listening_) return {};  // notifications for the handle's owner are not ours
        const bool open = alive_ && PQconsumeInput(handle_) == 1;
        std::vector<sql::notification> arrived = queued();
        if (open && PQstatus(handle_) != CONNECTION_BAD) return arrived;
        alive_ = false;
        // Notifications from before the close are returned first; the next call reports the close.
        if (arrived.empty()) throw driver::already_dead();
        return arrived;
    }

    // Drops what was prepared and listened to, if the connection is in a state to do so. Asks first
    // which names are left: DEALLOCATE of a missing one would fail, and with it the caller's
    // transaction.
    void give_back() noexcept {
        try {
            const PGTransactionStatusType state = PQtransactionStatus(handle_);
            const bool quiet = state == PQTRANS_IDLE || state == PQTRANS_INTRANS;
            if (!alive_ || !quiet || home_ != ::getpid()) return;
            if (PQpipelineStatus(handle_) != PQ_PIPELINE_OFF) return;
            const auto until = steady_clock::now() + close_timeout;
            unlisten(until);
            drop_prepared(until);
        } catch (...) {
            alive_ = false;
        }
    }

private:
    // Made with the first connection: the end of one must not ask for memory.
    static const error& lost_answer() {
        static const error unknown = driver::unanswered();
        return unknown;
    }

    // A cancel or timeout that ends the wait for a synchronous standby does not undo the commit:
    // the server warns and reports success, although a promotion would lose what was written. The
    // words of the warning are translated; the function it comes from is not.
    static void notice(void* self, const PGresult* what) noexcept {
        const char* function = PQresultErrorField(what, PG_DIAG_SOURCE_FUNCTION);
        if (function != nullptr && std::string_view{function} == "SyncRepWaitForLSN") {
            static_cast<wire*>(self)->standby_missed_ = true;
        }
    }

    struct kept {
        driver::rewritten shape;  // only its count of parameters matters: $n is PostgreSQL's own
        std::string name;
        int executions = 0;
        bool prepared = false;
        bool replace = false;  // the server has an unusable statement of this name
    };

    // A statement whose answer is not read yet.
    struct posted {
        std::uint64_t id;  // of the statement
        std::vector<answer> answers;
        sql::posted_answer on_answer;
    };

    // Parameters as libpq wants them, in text format.
    class wire_parameters {
    public:
        explicit wire_parameters(std::span<const sql::value> values) : texts_(values.size()) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                switch (values[i].type()) {
                    case sql::value::kind::null:
                        break;
                    case sql::value::kind::integer:
                        texts_[i] = std::to_string(values[i].integer());
                        break;
                    case sql::value::kind::text:
                        texts_[i] = checked(values[i].text());
                        break;
                }
            }
            for (std::size_t i = 0; i < values.size(); ++i) {
                pointers_.push_back(values[i].is_null() ? nullptr : texts_[i].c_str());
            }
        }
        [[nodiscard]] int count() const { return static_cast<int>(pointers_.size()); }
        [[nodiscard]] const char* const* data() const { return pointers_.data(); }

    private:
        std::vector<std::string> texts_;
        std::vector<const char*> pointers_;
    };

    // Puts the handle into non-blocking mode and leaves it as it was found.
    class non_blocking {
    public:
        explicit non_blocking(PGconn* handle) : handle_{handle}, before_{PQisnonblocking(handle)} {
            PQsetnonblocking(handle_, 1);
        }
        non_blocking(const non_blocking&) = delete;
        non_blocking& operator=(const non_blocking&) = delete;
        ~non_blocking() { PQsetnonblocking(handle_, before_); }

    private:
        PGconn* handle_;
        int before_;
    };

    // PostgreSQL has no NUL in text, and libpq would cut the text there.
    static std::string checked(std::string_view text) {
        if (text.find('\0') != std::string_view::npos) {
            throw error{errc::invalid_options,
                        "PostgreSQL text cannot hold a NUL byte; nothing was sent"};
        }
        return std::string{text};
    }

    static error in_a_child() {
        return {errc::wrong_process,
                "this connection belongs to the parent process: open another after fork()"};
    }

    void check_usable(sql::deadline until) {
        if (home_ != ::getpid()) throw in_a_child();
        if (!alive_) throw driver::already_dead();
        if (PQstatus(handle_) == CONNECTION_BAD) {
            alive_ = false;
            throw driver::already_dead();
        }
        const PGTransactionStatusType state = PQtransactionStatus(handle_);
        const bool piped = PQpipelineStatus(handle_) != PQ_PIPELINE_OFF;
        if (!posted_ && (state == PQTRANS_ACTIVE || piped)) {
            throw error{errc::invalid_options,
                        "the connection is busy with another command or in pipeline mode"};
        }
        require_utf8_client(handle_);
        if (until <= steady_clock::now()) throw driver::too_late();
    }

    kept& look_up(const sql::statement& what, sql::deadline until) {
        if (const auto found = statements_.find(what.id()); found != statements_.end()) {
            return found->second;
        }
        (void)checked(what.text());
        if (statements_.size() >= most_kept_statements) forget_all(until);
        kept fresh;
        fresh.shape = driver::rewrite_placeholders(what.text(), sql::dialect::postgresql,
                                                   driver::spelling::dollar);
        fresh.name = name_of(what);
        return statements_.emplace(what.id(), std::move(fresh)).first->second;
    }

    // Unique among the connections of this process, since a handle may be borrowed twice at a time.
    // The hash is for an undeclared pooler, which shares server connections between processes:
    // there a name must not stand for another text.
    [[nodiscard]] std::string name_of(const sql::statement& what) const {
        std::uint64_t hash = 14695981039346656037U;  // FNV-1a
        for (const char c : what.text()) {
            hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
        }
        return "rowlock_" + std::to_string(serial_) + "_" + std::to_string(what.id()) + "_" +
               std::to_string(hash);
    }

    // A borrowed handle is often borrowed for one statement only, so preparing waits for the
    // second.
    [[nodiscard]] bool wants_preparation(kept& statement) const {
        ++statement.executions;
        return !pooled_ && (!borrowed_ || statement.executions > 1);
    }

    std::vector<answer> run(kept& statement, const sql::statement& what,
                            const wire_parameters& sent, sql::deadline until) {
        if (statement.prepared && posted_) {
            send_behind(statement, sent);
            std::vector<answer> answers = exchange(until, true);
            PQexitPipelineMode(handle_);
            return answers;
        }
        if (statement.prepared) {
            require_sent(PQsendQueryPrepared(handle_, statement.name.c_str(), sent.count(),
                                             sent.data(), nullptr, nullptr, 0));
            return exchange(until);
        }
        if (!wants_preparation(statement)) {
            require_sent(PQsendQueryParams(handle_, what.text().c_str(), sent.count(), nullptr,
                                           sent.data(), nullptr, nullptr, 0));
            return exchange(until);
        }
        return prepare_and_run(statement, what, sent, until);
    }

    void send_behind(const kept& statement, const wire_parameters& sent) {
        const bool queued = PQenterPipelineMode(handle_) == 1 &&
                            PQsendQueryPrepared(handle_, statement.name.c_str(), sent.count(),
                                                sent.data(), nullptr, nullptr, 0) == 1 &&
                            PQpipelineSync(handle_) == 1;
        require_sent(queued ? 1 : 0);
    }

    void flush(sql::deadline until) {
        for (;;) {
            const int rest = PQflush(handle_);
            if (rest == 0) return;
            require_sent(rest < 0 ? 0 : 1);
            // The server may want to be read before it reads on.
            if (!wait_for(PQsocket(handle_), POLLIN | POLLOUT, until)) {
                alive_ = false;
                throw driver::unanswered();
            }
            if (PQconsumeInput(handle_) == 0) require_sent(0);
        }
    }

    // One round trip: everything is sent before the first answer is read.
    std::vector<answer> prepare_and_run(kept& statement, const sql::statement& what,
                                        const wire_parameters& sent, sql::deadline until) {
        const std::size_t before = statement.replace ? 1 : 0;
        const std::string replaced = "deallocate " + statement.name;
        const char* const name = statement.name.c_str();
        const bool queued =
            PQenterPipelineMode(handle_) == 1 &&
            (!statement.replace || PQsendQueryParams(handle_, replaced.c_str(), 0, nullptr, nullptr,
                                                     nullptr, nullptr, 0) == 1) &&
            PQsendPrepare(handle_, name, what.text().c_str(), 0, nullptr) == 1 &&
            PQsendQueryPrepared(handle_, name, sent.count(), sent.data(), nullptr, nullptr, 0) ==
                1 &&
            PQpipelineSync(handle_) == 1;
        require_sent(queued ? 1 : 0);
        std::vector<answer> answers = exchange(until, true);
        PQexitPipelineMode(handle_);
        if (answers.size() > before && PQresultStatus(answers[before].get()) == PGRES_COMMAND_OK) {
            statement.prepared = true;
            statement.replace = false;
        }
        return answers;
    }

    // Returns true if the failure is about the prepared handle and not about the statement, which
    // was not run: it is worth another try, outside a transaction.
    static bool forget_if_stale(kept& statement, const std::vector<answer>& answers) {
        const auto failed = std::ranges::find_if(answers, is_failure);
        if (failed == answers.end()) return false;
        const std::string sqlstate = field(failed->get(), PG_DIAG_SQLSTATE);
        if (sqlstate == "26000") {  // gone: DISCARD ALL by the handle's owner
            statement.prepared = false;
            statement.replace = false;
            return true;
        }
        if (sqlstate == "42P05") {  // there already: an undeclared pooler
            statement.prepared = true;
            return true;
        }
        // "cached plan must not change result type": a table was altered.
        if (sqlstate == "0A000" && statement.prepared &&
            field(failed->get(), PG_DIAG_SOURCE_FUNCTION) == "RevalidateCachedQuery") {
            statement.prepared = false;
            statement.replace = true;
            return true;
        }
        return false;
    }

    [[nodiscard]] error::server_report last_words() const {
        return {.sqlstate = {}, .message = first_line(PQerrorMessage(handle_))};
    }

    void require_sent(int accepted) {
        if (accepted == 1) return;
        alive_ = false;
        throw driver::broken(last_words());
    }

    // Reads the posted answer, after check_usable().
    void drain(sql::deadline until) {
        if (!posted_) return;
        const non_blocking guard{handle_};
        await(until, [&](sql::deadline end) { return collect_posted(end); });
        PQexitPipelineMode(handle_);
    }

    // Collects everything that the server answers to what was sent.
    std::vector<answer> exchange(sql::deadline until, bool pipelined = false) {
        standby_missed_ = false;
        std::vector<answer> answers;
        await(until, [&](sql::deadline end) {
            return collect_posted(end) && collect(answers, end, pipelined);
        });
        return answers;
    }

    // `read` returns false if its deadline passed, and resumes where it stopped when called again.
    template <typename Read>
    void await(sql::deadline until, Read read) {
        ++round_trips_;
        try {
            if (read(until)) return;
            const std::future<void> cancelled = send_cancel();
            const auto last = steady_clock::now() + cancel_grace;
            const bool answered = cancelled.valid() && read(last);
            // A cancel that is still under way could hit the next statement.
            const bool over =
                cancelled.valid() && cancelled.wait_until(last) == std::future_status::ready;
            if (!answered || !over) alive_ = false;
            if (!answered) throw driver::unanswered();
        } catch (const error&) {
            throw;
        } catch (...) {
            alive_ = false;  // out of memory; how much of the answer was read is unknown
            throw;
        }
    }

    // Returns false if the deadline passed first.
    bool collect_posted(sql::deadline until) {
        if (!posted_) return true;
        auto& answers = posted_->answers;
        if (!collect(answers, until, true)) return false;
        const auto statement = statements_.find(posted_->id);
        if (statement != statements_.end()) forget_if_stale(statement->second, answers);
        try {
            const sql::result table = interpret(answers);
            tell(&table, nullptr);
        } catch (const error& failure) {
            tell(nullptr, &failure);
        }
        standby_missed_ = false;
        return true;
    }

    void tell(const sql::result* table, const error* failure) {
        const auto on_answer = std::move(posted_->on_answer);
        posted_.reset();
        on_answer(table, failure);
    }

    // Returns false if the deadline passed first.
    bool collect(std::vector<answer>& answers, sql::deadline until, bool pipelined) {
        for (;;) {
            const bool unsent = PQflush(handle_) == 1;
            if (!unsent && PQisBusy(handle_) == 0) {
                answer next{PQgetResult(handle_)};
                if (!next && (!pipelined || PQstatus(handle_) == CONNECTION_BAD)) return true;
                if (!next) continue;
                const ExecStatusType status = PQresultStatus(next.get());
                if (status == PGRES_PIPELINE_SYNC) return true;
                if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT) refuse_copy();
                answers.push_back(std::move(next));
                continue;
            }
            const short events = unsent ? POLLIN | POLLOUT : POLLIN;
            if (!wait_for(PQsocket(handle_), events, until)) return false;
            if (PQconsumeInput(handle_) == 0 && PQstatus(handle_) != CONNECTION_BAD) {
                require_sent(0);  // no memory for the answer
            }
        }
    }

    [[noreturn]] void refuse_copy() {
        alive_ = false;
        throw error{errc::unsupported, "COPY cannot be run here; the connection is closed"};
    }

    // PQcancel() makes a connection of its own and waits for the server without any deadline, so it
    // runs on a thread that may outlive this call. Returns an invalid future if no cancel could be
    // sent.
    std::future<void> send_cancel() const {
        static std::atomic<int> under_way{0};
        if (under_way.fetch_add(1) >= most_cancels) {
            under_way.fetch_sub(1);
            return {};
        }
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        std::future<void> finished;
        try {
            std::shared_ptr<PGcancel> key{PQgetCancel(handle_), PQfreeCancel};
            std::promise<void> done;
            finished = done.get_future();
            std::thread{[key = std::move(key), done = std::move(done)]() mutable noexcept {
                std::array<char, 256> why{};
                if (key) PQcancel(key.get(), why.data(), static_cast<int>(why.size()));
                key.reset();
                under_way.fetch_sub(1);
                done.set_value();
            }}.detach();
        } catch (const std::exception&) {  // no thread, no memory
            under_way.fetch_sub(1);
            finished = {};
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return finished;
    }

    sql::result interpret(const std::vector<answer>& answers) {
        if (standby_missed_) {
            alive_ = false;
            throw error{
                errc::outcome_unknown,
                "the commit is on the primary alone: no synchronous standby confirmed it in "
                "time"};
        }
        const auto failed = std::ranges::find_if(answers, is_failure);
        if (failed != answers.end()) throw failure(*failed);
        // Without the server's final answer the commit may not have happened.
        if (answers.empty() || PQstatus(handle_) == CONNECTION_BAD) {
            alive_ = false;
            throw driver::broken(last_words());
        }
        return table_of(answers.back().get());
    }

    error failure(const answer& failed) {
        error::server_report report = report_of(failed);
        // After a FATAL the server closes the connection, and collect() has waited for that.
        if (report.sqlstate.empty() || PQstatus(handle_) == CONNECTION_BAD) {
            alive_ = false;
            report.message = first_line(report.message);
            return driver::broken(std::move(report));
        }
        const errc kind = sql::classify_postgresql(report.sqlstate);
        // A pooler may report a lost server connection while ours to it stays open: the statement
        // may have been executed.
        if (kind == errc::database_unreachable) {
            alive_ = false;
            return driver::broken(std::move(report));
        }
        return driver::refusal(kind, std::move(report));
    }

    static sql::result table_of(PGresult* from) {
        const int columns = PQnfields(from);
        sql::result table{static_cast<std::size_t>(columns)};
        for (int row = 0; row < PQntuples(from); ++row) {
            for (int column = 0; column < columns; ++column) {
                if (PQgetisnull(from, row, column) != 0) {
                    table.append_null();
                } else {
                    const auto length = static_cast<std::size_t>(PQgetlength(from, row, column));
                    table.append_text({PQgetvalue(from, row, column), length});
                }
            }
        }
        const std::string_view command = PQcmdStatus(from);
        if (!command.starts_with("SELECT")) table.set_affected(std::atoll(PQcmdTuples(from)));
        return table;
    }

    void forget_all(sql::deadline until) {
        if (PQtransactionStatus(handle_) == PQTRANS_INERROR) return;  // nothing can be run now
        drop_prepared(until);
        statements_.clear();
    }

    void drop_prepared(sql::deadline until) {
        if (std::ranges::none_of(statements_, [](const auto& each) {
                return each.second.prepared || each.second.replace;
            })) {
            return;
        }
        const non_blocking guard{handle_};
        const std::string ours = "rowlock_" + std::to_string(serial_) + "_";
        const std::string ask =
            "select name from pg_catalog.pg_prepared_statements where name operator(pg_catalog.~) "
            "'^" +
            ours + "'";
        require_sent(PQsendQuery(handle_, ask.c_str()));
        const sql::result names = interpret(exchange(until));
        std::string drop;
        for (std::size_t row = 0; row < names.rows(); ++row) {
            drop.append("deallocate ").append(names.text(row, 0)).append(";");
        }
        if (drop.empty()) return;
        require_sent(PQsendQuery(handle_, drop.c_str()));
        (void)interpret(exchange(until));
    }

    void require_listenable(std::string_view channel) const {
        if (pooled_) {
            throw error{errc::unsupported,
                        "behind a transaction pooler nothing can be listened to: the server "
                        "process is another client's by the next statement"};
        }
        if (channel.empty() || channel.size() > longest_channel) {
            throw error{errc::invalid_options, "the name of a channel has 1 to " +
                                                   std::to_string(longest_channel) + " bytes"};
        }
        (void)checked(channel);
    }

    // The notifications that libpq has read so far.
    std::vector<sql::notification> queued() {
        struct free_notification {
            void operator()(PGnotify* one) const noexcept { PQfreemem(one); }
        };
        std::vector<sql::notification> all;
        while (const std::unique_ptr<PGnotify, free_notification> one{PQnotifies(handle_)}) {
            all.push_back({one->relname, one->extra});
        }
        return all;
    }

    void unlisten(sql::deadline until) {
        if (unlisten_.empty()) return;
        std::string text;
        for (const std::string& channel : unlisten_) text += "unlisten " + channel + ";";
        unlisten_.clear();
        const non_blocking guard{handle_};
        require_sent(PQsendQuery(handle_, text.c_str()));
        (void)interpret(exchange(until));
    }

    static std::uint64_t next_serial() {
        static std::atomic<std::uint64_t> last{0};
        return ++last;
    }

    PGconn* handle_;
    bool pooled_;
    bool borrowed_;
    bool alive_ = true;
    bool standby_missed_ = false;
    bool listening_ = false;
    std::optional<posted> posted_;
    std::vector<std::string> unlisten_;  // quoted: channels that the owner did not listen to before
    pid_t home_ = ::getpid();
    std::uint64_t serial_ = next_serial();
    std::uint64_t round_trips_ = 0;
    std::unordered_map<std::uint64_t, kept> statements_;
};

class own_connection final : public sql::connection {
public:
    own_connection(connection_handle handle, const options& how)
        : handle_{std::move(handle)}, wire_{handle_.get(), how, wire::ownership::ours} {}
    own_connection(const own_connection&) = delete;
    own_connection& operator=(const own_connection&) = delete;

    // In a forked child the socket is shared with the parent; closing it with a farewell message
    // would end the parent's session.
    ~own_connection() override {
        if (home_ == ::getpid()) return;
        const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
        if (nowhere < 0 || ::dup2(nowhere, PQsocket(handle_.get())) < 0) (void)handle_.release();
        if (nowhere >= 0) ::close(nowhere);
    }

    [[nodiscard]] sql::dialect speaks() const noexcept override { return sql::dialect::postgresql; }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        return watched([&] { return wire_.execute(what, parameters, until); });
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        return watched([&] { return wire_.query(text, until); });
    }
    bool post(const sql::statement& what, std::span<const sql::value> parameters,
              sql::deadline until, sql::posted_answer on_answer) override {
        return wire_.post(what, parameters, until, std::move(on_answer));
    }
    [[nodiscard]] bool alive() const noexcept override { return wire_.alive(); }
    [[nodiscard]] bool keeps_session_state() const noexcept override {
        return wire_.keeps_session_state();
    }
    [[nodiscard]] sql::transaction_state transaction() const noexcept override {
        return wire_.transaction();
    }
    [[nodiscard]] int socket() const noexcept override { return wire_.socket(); }
    [[nodiscard]] sql::notifications* notifications() noexcept override { return &wire_; }
    [[nodiscard]] std::int64_t announced_process() const noexcept override {
        return wire_.announced_process();
    }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return wire_.round_trips();
    }

private:
    // This server is not, or no longer, a primary; the next connection may be to one.
    template <typename Call>
    sql::result watched(Call call) {
        try {
            return call();
        } catch (const error& failure) {
            if (failure.kind() == errc::read_only) discard();
            throw;
        }
    }

    connection_handle handle_;
    pid_t home_ = ::getpid();
    wire wire_;
};

}  // namespace

sql::connection_source open(const std::string& url, options options) {
    const auto to = std::make_shared<const target>(understand(url, options));
    options.transaction_pooler = to->transaction_pooler;
    const auto connect = [to, options](sql::deadline until) -> std::unique_ptr<sql::connection> {
        return std::make_unique<own_connection>(postgresql::connect(*to, until), options);
    };
    return sql::connection_source{sql::dialect::postgresql, connect, to->description}.with_tables(
        to->tables);
}

class connection_ref::session final : public wire {
public:
    using wire::wire;
};

connection_ref::connection_ref(pg_conn* handle, options options)
    : session_{std::make_unique<session>(handle, options, wire::ownership::borrowed)} {}

connection_ref::~connection_ref() {
    session_->give_back();
}

sql::result connection_ref::execute(const sql::statement& what,
                                    std::span<const sql::value> parameters, sql::deadline until) {
    return session_->execute(what, parameters, until);
}

sql::result connection_ref::query(std::string_view text, sql::deadline until) {
    return session_->query(text, until);
}

bool connection_ref::alive() const noexcept {
    return session_->alive();
}

bool connection_ref::keeps_session_state() const noexcept {
    return session_->keeps_session_state();
}

sql::transaction_state connection_ref::transaction() const noexcept {
    return session_->transaction();
}

int connection_ref::socket() const noexcept {
    return session_->socket();
}

sql::notifications* connection_ref::notifications() noexcept {
    return session_.get();
}

std::int64_t connection_ref::announced_process() const noexcept {
    return session_->announced_process();
}

std::uint64_t connection_ref::round_trips() const noexcept {
    return session_->round_trips();
}

}  // namespace rowlock::postgresql
