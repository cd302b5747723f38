#include "base/ablation.hpp"
#include "base/ascii.hpp"
#include "driver/lock_pause.hpp"
#include "driver/placeholders.hpp"
#include "driver/refusal.hpp"
#include "driver/sqlite_turns.hpp"
#include "driver/sqlite_watch.hpp"
#include "driver/url.hpp"
#include "sql/lexer.hpp"
#include <rowlock/driver/sqlite.hpp>
#include <rowlock/error.hpp>
#include <rowlock/sql/classify.hpp>
#include <rowlock/sql/notifications.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rowlock::sqlite {
namespace {

using std::chrono::steady_clock;

constexpr int oldest_supported = 3'035'000;  // RETURNING
// Virtual machine instructions between two checks of the clock: some ten microseconds.
constexpr int instructions_per_look = 1'000;
// A check for commits waits for no lock; but a deadline must lie ahead.
constexpr auto look_deadline = std::chrono::milliseconds{2};
// Far more than the strategies use; bounds the cache of a caller that makes statements on the fly.
constexpr std::size_t most_kept_statements = 500;

struct finalize {
    void operator()(sqlite3_stmt* handle) const noexcept { sqlite3_finalize(handle); }
};
using statement_handle = std::unique_ptr<sqlite3_stmt, finalize>;

struct close_database {
    void operator()(sqlite3* handle) const noexcept { sqlite3_close_v2(handle); }
};
using database_handle = std::unique_ptr<sqlite3, close_database>;

// A cached statement must be reset, whatever happens, or its read transaction stays open. The
// bindings point into the caller's text.
class reset_after_use {
public:
    explicit reset_after_use(sqlite3_stmt* handle) noexcept : handle_{handle} {}
    reset_after_use(const reset_after_use&) = delete;
    reset_after_use& operator=(const reset_after_use&) = delete;
    ~reset_after_use() {
        sqlite3_reset(handle_);
        sqlite3_clear_bindings(handle_);
    }

private:
    sqlite3_stmt* handle_;
};

std::string explain(errc code, const std::string& where) {
    switch (code) {
        case errc::timed_out:
            return where + " was locked by another connection until the deadline; nothing was done";
        case errc::conflict:
            return where +
                   " was changed by another connection meanwhile; start the transaction over";
        case errc::read_only:
            return where +
                   " does not accept writes; check the permissions of the file, of its "
                   "folder and of its -wal and -shm";
        case errc::access_denied:
            return where + " may not be used by this user or this handle";
        case errc::out_of_resources:
            return where + " has no room: check disk space and memory";
        case errc::database_unreachable:
            return where +
                   " cannot be opened; check that it exists and that this user may write it "
                   "and its folder";
        case errc::schema_outdated:
            return where +
                   " lacks a table or column that this statement needs: run `rowlock migrate`";
        case errc::unique_violation:
            return where + " already has a row with this key";
        case errc::unsupported:
            return where + " is used through an SQLite that lacks a feature";
        case errc::outcome_unknown:
            return where + " could not be flushed to disk; the last change may be lost or not";
        default:
            return where + " could not carry out a statement";
    }
}

[[noreturn]] void fail(sqlite3* handle, int code, const std::string& where) {
    const std::string message = handle != nullptr ? sqlite3_errmsg(handle) : sqlite3_errstr(code);
    const errc kind = sql::classify_sqlite(code, message);
    std::string text = explain(kind, where);
    const int primary = code & 0xff;
    if (primary == SQLITE_INTERRUPT) {
        text = "a statement on " + where +
               " ran until its deadline; nothing was done, and its transaction may be rolled back";
    }
    if (primary == SQLITE_NOTADB) text = where + " is not an SQLite database";
    if (primary == SQLITE_CORRUPT) text = where + " is damaged; restore it from a backup";
    if (kind == errc::database_error) {
        text += std::string{" (SQLite: "} + sqlite3_errstr(code) + ", code " +
                std::to_string(code) + ")";
    }
    throw error{kind, text, {"", code, message}};
}

// The files that our connections hold open. After fork() the child's SQLite still counts its
// parent's connections among its own: a new one in the child would rely on their locks and take
// none. When that was tried, the parent closed, the log was deleted under the child, and ten
// commits were lost. So such a connection is refused.
class open_files {
public:
    struct identity {
        dev_t device = 0;
        ino_t inode = 0;
        bool operator==(const identity&) const = default;
    };

    static open_files& instance() {
        static auto* const only = new open_files;  // outlives every connection
        return *only;
    }

    std::mutex& guard() noexcept { return guard_; }

    void enter(const identity& file) {
        const std::lock_guard lock{guard_};
        entries_.push_back({file, ::getpid()});
    }
    void leave(const identity& file) noexcept {
        const std::lock_guard lock{guard_};
        const auto found = std::ranges::find(entries_, entry{file, ::getpid()});
        if (found != entries_.end()) entries_.erase(found);
    }
    // The log beside the database at `path`, which a connection has opened. All connections of a
    // process to one database share the map of its index, from the first that opens it to the last
    // that closes: only then does SQLite delete the log.
    void enter_log(const identity& file, const std::string& path) {
        const std::lock_guard lock{guard_};
        const auto known = std::ranges::find(logs_, file, &log::of);
        if (known != logs_.end()) {
            ++known->users;
        } else {
            logs_.push_back({file, files_of_log(path)});
        }
    }
    // Call before the connection is closed: afterwards the next one may have made another log.
    void leave_log(const identity& file) noexcept {
        const std::lock_guard lock{guard_};
        const auto known = std::ranges::find(logs_, file, &log::of);
        if (known != logs_.end() && --known->users == 0) logs_.erase(known);
    }
    // Whether the log is still the one that this process has open, if it has one open. A file is
    // put back by removing the log and writing over the database, whose inode stays; a process that
    // has the removed log open would continue in it and see no other. False also if a part of it
    // was removed.
    [[nodiscard]] bool has_same_log(const identity& file, const std::string& path) {
        // With the guard, so that the log keeps a user between the two looks.
        const std::lock_guard lock{guard_};
        const auto known = std::ranges::find(logs_, file, &log::of);
        if (known == logs_.end()) return true;
        const log_files now = files_of_log(path);
        // SQLite makes the log after its index.
        if (known->files.pages == identity{}) known->files.pages = now.pages;
        return known->files == now;
    }
    [[nodiscard]] bool inherited(const identity& file) {
        const std::lock_guard lock{guard_};
        return std::ranges::any_of(entries_, [&file, self = ::getpid()](const entry& one) {
            return one.file == file && one.process != self;
        });
    }

private:
    struct entry {
        identity file;
        pid_t process;
        bool operator==(const entry&) const = default;
    };

    struct log_files {
        identity pages;
        identity index;
        bool operator==(const log_files&) const = default;
    };
    struct log {
        identity of;
        log_files files;
        int users = 1;
    };

    static log_files files_of_log(const std::string& path) {
        return {identity_of(path + "-wal"), identity_of(path + "-shm")};
    }

    static identity identity_of(const std::string& path) noexcept {
        struct stat found = {};
        if (::stat(path.c_str(), &found) != 0) return {};
        return {found.st_dev, found.st_ino};
    }

    // No fork happens while another thread holds the mutex, or the child could never lock it.
    open_files() {
        ::pthread_atfork([] { instance().guard_.lock(); }, [] { instance().guard_.unlock(); },
                         [] { instance().guard_.unlock(); });
    }

    std::mutex guard_;
    std::vector<entry> entries_;
    std::vector<log> logs_;  // that this process has open
};

// An entry in that list. A forked child leaves its parent's entries there.
class open_file {
public:
    explicit open_file(const open_files::identity& file) : file_{file} {
        open_files::instance().enter(file_);
    }
    open_file(const open_file&) = delete;
    open_file& operator=(const open_file&) = delete;
    ~open_file() { open_files::instance().leave(file_); }

    [[nodiscard]] const open_files::identity& identity() const noexcept { return file_; }

private:
    open_files::identity file_;
};

// True for file systems whose locks or shared memory do not work between hosts. FUSE hides what is
// beneath.
bool is_network(std::uint32_t type) noexcept {
    constexpr std::array<std::uint32_t, 11> magic{
        0x00006969,  // NFS
        0x0000517b,  // SMB
        0xff534d42,  // CIFS
        0xfe534d42,  // SMB2
        0x5346414f,  // AFS
        0x73757245,  // Coda
        0x0000564c,  // NCP
        0x00c36400,  // Ceph
        0x0bd00bd0,  // Lustre
        0x01161970,  // GFS2
        0x7461636f,  // OCFS2
    };
    return std::ranges::find(magic, type) != magic.end();
}

// Runs statements on a handle, our own or borrowed.
class runner : public sql::notifications {
public:
    // A borrowed handle: the caller's busy and progress handlers stay, since SQLite cannot tell
    // what they are.
    runner(sqlite3* handle, std::string where) : handle_{handle}, where_{std::move(where)} {}

    runner(database_handle own, std::string where)
        : owned_{std::move(own)}, handle_{owned_.get()}, where_{std::move(where)} {
        sqlite3_busy_handler(handle_, &runner::wait_for_lock, this);
        sqlite3_progress_handler(handle_, instructions_per_look, &runner::look_at_clock, this);
        sqlite3_wal_hook(handle_, &runner::end_turn, this);
    }
    runner(const runner&) = delete;
    runner& operator=(const runner&) = delete;
    ~runner() override {
        if (in_other_process()) {
            // SQLite's locks and shared memory are the parent's: leave everything as it is.
            for (auto& [id, kept] : kept_) static_cast<void>(kept.release());
            static_cast<void>(owned_.release());
            static_cast<void>(turns_.release());
            return;
        }
        if (owned_ == nullptr) return;
        if (connected_) open_files::instance().leave_log(file_);
        sqlite3_busy_handler(handle_, nullptr, nullptr);  // so that closing does not wait
        sqlite3_wal_hook(handle_, nullptr, nullptr);
        sqlite3_progress_handler(handle_, 0, nullptr, nullptr);
    }

    // From now on calls notice if the file is replaced.
    void watch(std::string path, const open_files::identity& file) {
        path_ = std::move(path);
        file_ = file;
    }

    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) {
        begin_call(until);
        sqlite3_stmt* const prepared = keep(what);
        const auto wanted = sqlite3_bind_parameter_count(prepared);
        if (std::cmp_not_equal(wanted, parameters.size())) {
            throw error{errc::invalid_options, "a statement takes " + std::to_string(wanted) +
                                                   " parameters, not " +
                                                   std::to_string(parameters.size())};
        }
        const turn with_others{*this, prepared};
        const reset_after_use guard{prepared};
        bind(prepared, parameters);
        return run(prepared);
    }

    sql::result query(std::string_view text, sql::deadline until) {
        begin_call(until);
        statement_handle prepared = prepare(text, 0);
        if (prepared == nullptr) return sql::result{};
        const turn with_others{*this, prepared.get()};
        const auto ended = std::move(prepared);  // before the turn
        return run(ended.get());
    }

    void listen(std::string_view /*channel*/, sql::deadline until) override {
        begin_call(until);
        if (!watch_) watch_file(until);
    }

    void want_changes(bool wanted) override {
        if (!watch_ || in_other_process() || wanted != watch_->resting()) return;
        if (!wanted) return watch_->rest();
        watch_->resume(where_);
        blind_ = true;  // a commit that was being written shows only later
    }

    [[nodiscard]] int descriptor() const noexcept override {
        return watch_ ? watch_->descriptor() : -1;
    }

    std::vector<sql::notification> take() override {
        if (!watch_) {
            if (in_other_process()) throw in_a_child();
            return {};
        }
        require_usable();
        if (watch_->resting()) return {};
        const auto now = steady_clock::now();
        if (!watch_->may_look(now)) return {};
        // If this check fails, its changes count as not checked yet.
        const bool written = watch_->was_written() || blind_;
        blind_ = true;
        bool changed = false;
        try {
            changed = check(written);
        } catch (...) {
            watch_->checked(now, written, false);  // or the descriptor would stay readable
            throw;
        }
        watch_->checked(now, written, changed);
        if (!changed) return {};
        return {sql::notification{}};
    }

    // The connection is made. Excludes what that cost.
    void start_counting() {
        round_trips_ = 0;
        open_files::instance().enter_log(file_, path_of_file());
        connected_ = true;
        require_same_file();
    }

    [[nodiscard]] sql::transaction_state transaction() const noexcept {
        return sqlite3_get_autocommit(handle_) != 0 ? sql::transaction_state::none
                                                    : sql::transaction_state::open;
    }
    [[nodiscard]] bool alive() const noexcept { return alive_; }
    [[nodiscard]] std::uint64_t round_trips() const noexcept { return round_trips_; }

private:
    static int wait_for_lock(void* self, int attempt) {
        auto& mine = *static_cast<runner*>(self);
        if (mine.joins_the_writers()) return 1;
        return driver::pause_for_lock(attempt, mine.until_) ? 1 : 0;
    }

    // Interrupts by flag and not by its return value: SQLite asks once more after a statement has
    // committed, and would then answer "interrupt" for a statement that took effect.
    static int look_at_clock(void* self) {
        auto& mine = *static_cast<runner*>(self);
        if (steady_clock::now() >= mine.until_) sqlite3_interrupt(mine.handle_);
        return 0;
    }

    // A connection takes turns with other writers from the first time it finds the file locked.
    // If no file can be made for them (a limit, a full disk), it tries again in a while.
    [[nodiscard]] bool joins_the_writers() noexcept {
        constexpr auto rest = std::chrono::seconds{10};
        if (!may_join_ || turns_ || !base::uses(base::fast_path::write_turns)) return false;
        const auto now = steady_clock::now();
        if (now < next_join_) return false;
        turns_ = write_turns::open(path_of_file());
        next_join_ = now + rest;
        if (turns_) turns_->enter(until_);
        return turns_ != nullptr;
    }

    // SQLite calls it when a commit has let go of the write lock. Its own hook makes the same
    // checkpoint, but those who queue would wait for that.
    static int end_turn(void* self, sqlite3* handle, const char* database, int pages) {
        constexpr int pages_between_checkpoints = 1000;
        auto& mine = *static_cast<runner*>(self);
        if (mine.turns_) mine.turns_->leave();
        if (pages >= pages_between_checkpoints) sqlite3_wal_checkpoint(handle, database);
        return SQLITE_OK;
    }

    // Whether a statement begins a transaction by taking the write lock, and holds no lock while it
    // waits for that. Others that write, like PRAGMA and VACUUM, may wait for readers while they
    // hold one.
    [[nodiscard]] bool begins_writing(sqlite3_stmt* prepared) const noexcept {
        if (owned_ == nullptr || !connected_ || sqlite3_stmt_readonly(prepared) != 0 ||
            sqlite3_txn_state(handle_, nullptr) != SQLITE_TXN_NONE) {
            return false;
        }
        sql::lexer text{sql::dialect::sqlite, sqlite3_sql(prepared)};
        auto first = text.next();
        while (first && first->kind != sql::token_kind::word) first = text.next();
        constexpr std::array<const char*, 6> words{"begin",   "delete", "insert",
                                                   "replace", "update", "with"};
        return first && std::ranges::any_of(words, [&](const char* each) {
                   return ascii::equal_ignoring_case(first->text, each);
               });
    }

    // The turn of a statement that begins to write. It lasts until the transaction ends.
    class turn {
    public:
        turn(runner& of, sqlite3_stmt* prepared) noexcept : of_{of} {
            of_.may_join_ = of_.begins_writing(prepared);
            if (of_.may_join_ && of_.turns_) of_.turns_->enter(of_.until_);
        }
        turn(const turn&) = delete;
        turn& operator=(const turn&) = delete;
        ~turn() {
            of_.may_join_ = false;
            if (of_.turns_ && sqlite3_txn_state(of_.handle_, nullptr) != SQLITE_TXN_WRITE) {
                of_.turns_->leave();
            }
        }

    private:
        runner& of_;
    };

    [[nodiscard]] bool in_other_process() const noexcept { return ::getpid() != process_; }

    static error in_a_child() {
        return {errc::wrong_process,
                "an SQLite connection cannot be used in a forked child; connect anew"};
    }

    void require_usable() {
        if (in_other_process()) throw in_a_child();
        if (!alive_) throw driver::already_dead();
        require_same_file();
    }

    [[nodiscard]] const char* path_of_file() const noexcept {
        return sqlite3_db_filename(handle_, "main");
    }

    void watch_file(sql::deadline until) {
        const char* const path = path_of_file();
        if (path == nullptr || *path == '\0') {
            throw error{errc::unsupported, "a database in memory cannot be watched for changes"};
        }
        struct statfs found = {};
        if (::statfs(path, &found) == 0 && is_network(static_cast<std::uint32_t>(found.f_type))) {
            throw error{errc::unsupported,
                        where_ +
                            " is on a network file system, which does not report changes by other "
                            "hosts"};
        }
        (void)data_version(until);  // opens the log, and makes it if there is none
        auto made = std::make_unique<file_watch>(path, where_);
        seen_ = data_version(until);
        watch_ = std::move(made);
    }

    // Whether another connection has committed since the last check. In rollback mode (a borrowed
    // handle) that cannot be asked: a writer that has begun to write blocks every reader. But a
    // reader from now on waits for that commit, so a write is reported right away.
    bool check(bool written) {
        if (owned_ == nullptr && !watch_->has_log()) {
            blind_ = false;
            return written;
        }
        try {
            const auto now = data_version(steady_clock::now() + look_deadline);
            blind_ = false;
            return std::exchange(seen_, now) != now;
        } catch (const error& failure) {
            if (!alive_ || failure.kind() != errc::timed_out) throw;
            return false;  // the log is being recovered, or the file locked as a whole
        }
    }

    // Changes with each commit of another connection, in this process or not. Not counted as a
    // round trip of the caller's.
    std::int64_t data_version(sql::deadline until) {
        static const sql::statement ask{"pragma data_version"};
        const auto before = round_trips_;
        const auto answer = execute(ask, {}, until).integer(0, 0);
        round_trips_ = before;
        return answer;
    }

    void begin_call(sql::deadline until) {
        require_usable();
        if (steady_clock::now() >= until) throw driver::too_late();
        until_ = until;
        ++round_trips_;
    }

    // In WAL mode SQLite keeps writing to a file that was deleted or replaced, and no other process
    // would see our locks.
    void require_same_file() {
        if (path_.empty()) return;
        struct stat now = {};
        const bool there = ::stat(path_.c_str(), &now) == 0 &&
                           open_files::identity{now.st_dev, now.st_ino} == file_;
        if (there && open_files::instance().has_same_log(file_, path_of_file())) return;
        alive_ = false;
        if (!there) {
            throw error{errc::database_unreachable,
                        where_ + " was moved, deleted or replaced while it was open; connect anew"};
        }
        // What SQLite calls a file that it would write to although others do not see it.
        throw error{errc::database_unreachable,
                    where_ +
                        " was put back while it was open: its log (-wal, -shm) is another one. Its "
                        "locks are lost; all connections of this process to it must be closed",
                    {.sqlstate = {}, .native_code = SQLITE_READONLY_DBMOVED, .message = {}}};
    }

    sqlite3_stmt* keep(const sql::statement& what) {
        if (const auto found = kept_.find(what.id()); found != kept_.end())
            return found->second.get();
        const auto text = driver::rewrite_placeholders(what.text(), sql::dialect::sqlite,
                                                       driver::spelling::question_number);
        statement_handle prepared = prepare(text.text, SQLITE_PREPARE_PERSISTENT);
        if (prepared == nullptr) throw error{errc::invalid_options, "an empty statement"};
        if (kept_.size() >= most_kept_statements) kept_.erase(kept_.begin());
        return kept_.emplace(what.id(), std::move(prepared)).first->second.get();
    }

    statement_handle prepare(std::string_view text, unsigned flags) {
        if (text.data() == nullptr) text = "";
        const char* rest = nullptr;
        statement_handle prepared = prepare(text, flags, rest);
        const std::string_view tail = text.substr(static_cast<std::size_t>(rest - text.data()));
        if (tail.empty()) return prepared;
        // What follows may only be blanks and comments.
        if (prepare(tail, 0, rest) != nullptr) {
            throw error{errc::invalid_options,
                        "one statement at a time: the text holds more than one"};
        }
        return prepared;
    }

    statement_handle prepare(std::string_view text, unsigned flags, const char*& rest) {
        for (int attempt = 0;; ++attempt) {
            sqlite3_stmt* made = nullptr;
            const int code = sqlite3_prepare_v3(handle_, text.data(), static_cast<int>(text.size()),
                                                flags, &made, &rest);
            if (code == SQLITE_OK) return statement_handle{made};
            if (!may_wait(code) || !driver::pause_for_lock(attempt, until_)) give_up(code);
        }
    }

    void bind(sqlite3_stmt* prepared, std::span<const sql::value> parameters) {
        int index = 0;
        for (const sql::value& parameter : parameters) {
            ++index;
            int code = SQLITE_OK;
            switch (parameter.type()) {
                case sql::value::kind::null:
                    code = sqlite3_bind_null(prepared, index);
                    break;
                case sql::value::kind::integer:
                    code = sqlite3_bind_int64(prepared, index, parameter.integer());
                    break;
                case sql::value::kind::text: {
                    // A null pointer would bind NULL, and an empty string_view may hold one.
                    const std::string_view text = parameter.text();
                    code = sqlite3_bind_text64(prepared, index, text.empty() ? "" : text.data(),
                                               text.size(), SQLITE_STATIC, SQLITE_UTF8);
                    break;
                }
            }
            if (code != SQLITE_OK) give_up(code);
        }
    }

    sql::result run(sqlite3_stmt* prepared) {
        for (int attempt = 0;; ++attempt) {
            const int changes_before = sqlite3_total_changes(handle_);
            int code = sqlite3_step(prepared);
            // Read only now: the first step prepares anew if the schema has changed.
            sql::result answer{static_cast<std::size_t>(sqlite3_column_count(prepared))};
            for (; code == SQLITE_ROW; code = sqlite3_step(prepared)) append_row(prepared, answer);
            if (code == SQLITE_DONE) {
                // sqlite3_changes() alone would still report an earlier statement's count.
                const bool changed = sqlite3_total_changes(handle_) != changes_before;
                answer.set_affected(changed ? sqlite3_changes(handle_) : 0);
                return answer;
            }
            const int extended = sqlite3_extended_errcode(handle_);
            if ((extended & 0xff) == (code & 0xff)) code = extended;
            if (!may_wait(code)) give_up(code);
            sqlite3_reset(prepared);
            if (!driver::pause_for_lock(attempt, until_)) give_up(code);
        }
    }

    void append_row(sqlite3_stmt* prepared, sql::result& answer) {
        const int columns = sqlite3_column_count(prepared);
        for (int column = 0; column < columns; ++column) {
            switch (sqlite3_column_type(prepared, column)) {
                case SQLITE_NULL:
                    answer.append_null();
                    break;
                case SQLITE_INTEGER:
                    answer.append_integer(sqlite3_column_int64(prepared, column));
                    break;
                default: {
                    const void* const bytes = sqlite3_column_blob(prepared, column);
                    const int size = sqlite3_column_bytes(prepared, column);
                    if (bytes == nullptr && size > 0) give_up(SQLITE_NOMEM);
                    answer.append_text(
                        {static_cast<const char*>(bytes), static_cast<std::size_t>(size)});
                }
            }
        }
    }

    // A borrowed handle has no busy handler of ours. Waiting is safe, and useful, only while this
    // connection holds no lock itself: otherwise two connections could wait for each other.
    [[nodiscard]] bool may_wait(int code) const noexcept {
        return owned_ == nullptr && (code & 0xff) == SQLITE_BUSY && code != SQLITE_BUSY_SNAPSHOT &&
               sqlite3_txn_state(handle_, nullptr) == SQLITE_TXN_NONE;
    }

    [[noreturn]] void give_up(int code) {
        try {
            fail(handle_, code, where_);
        } catch (const error& failure) {
            // A connection of ours that can only read found the log so when it opened it, perhaps
            // for want of a descriptor: the next connection may find it writable.
            const bool stuck = owned_ != nullptr && failure.kind() == errc::read_only;
            if (stuck || failure.kind() == errc::outcome_unknown ||
                failure.native_code() == SQLITE_READONLY_DBMOVED) {
                alive_ = false;
            }
            throw;
        }
    }

    std::unique_ptr<write_turns> turns_;  // ends its turn after owned_ its transaction
    steady_clock::time_point next_join_{};
    bool may_join_ = false;   // the statement that runs begins to write
    bool connected_ = false;  // has the log open
    database_handle owned_;
    sqlite3* handle_;
    std::string where_;
    pid_t process_ = ::getpid();
    std::string path_;
    open_files::identity file_;
    sql::deadline until_{};
    bool alive_ = true;
    std::uint64_t round_trips_ = 0;
    std::unique_ptr<file_watch> watch_;
    std::int64_t seen_ = 0;  // data_version() at the last check
    bool blind_ = false;     // the last check has failed
    std::unordered_map<std::uint64_t, statement_handle> kept_;
};

class own_connection final : public sql::connection {
public:
    own_connection(std::unique_ptr<open_file> file, database_handle handle, std::string where)
        : file_{std::move(file)}, runner_{std::move(handle), std::move(where)} {}

    [[nodiscard]] sql::dialect speaks() const noexcept override { return sql::dialect::sqlite; }
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
    [[nodiscard]] sql::notifications* notifications() noexcept override { return &runner_; }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return runner_.round_trips();
    }

    runner& statements() noexcept { return runner_; }

private:
    std::unique_ptr<open_file> file_;
    runner runner_;
};

// The contents of a URL, checked.
struct target {
    std::string path;   // absolute, so that a later chdir() changes nothing
    std::string where;  // for messages
    bool create = true;
    bool synchronous_full = true;
    std::function<std::int64_t()> testing_clock;
    sql::table_names tables;
};

[[noreturn]] void refuse(const std::string& why) {
    throw error{errc::invalid_url, why};
}

bool parse_bool(const driver::url_parameter& from) {
    if (from.value != "true" && from.value != "false") driver::refuse_value(from, "true or false");
    return from.value == "true";
}

void apply(target& to, const driver::url_parameter& parameter) {
    if (parameter.name == "create") {
        to.create = parse_bool(parameter);
    } else if (parameter.name == "synchronous") {
        if (parameter.value != "full" && parameter.value != "normal") {
            driver::refuse_value(parameter, "full or normal");
        }
        to.synchronous_full = parameter.value == "full";
    } else {
        driver::refuse_parameter("sqlite", parameter);
    }
}

std::string parse_path(std::string_view text) {
    if (text.starts_with("//")) {
        text.remove_prefix(2);
        if (!text.starts_with('/')) {
            refuse(
                "sqlite URL: there is no host; write sqlite:relative/path or "
                "sqlite:///absolute/path");
        }
    }
    const std::string path = driver::percent_decoded(text);
    if (path.empty()) refuse("sqlite URL: the path of the file is missing");
    if (path.starts_with(":memory:") || path.starts_with("file:")) {
        refuse(
            "sqlite URL: a database in memory or a file: URI is refused, since no other process "
            "would see its locks; name a file");
    }
    std::error_code failure;
    const auto absolute = std::filesystem::absolute(path, failure);
    if (failure) refuse("sqlite URL: the path is relative and the working folder is gone");
    return absolute.string();  // not normalized: ../ behind a symbolic link
}

target parse(std::string_view url, options settings) {
    constexpr std::string_view scheme = "sqlite:";
    if (!url.starts_with(scheme)) refuse("an SQLite URL starts with 'sqlite:'");
    url.remove_prefix(scheme.size());
    const auto question = std::min(url.find('?'), url.size());
    target parsed;
    parsed.create = settings.create;
    parsed.testing_clock = std::move(settings.testing_clock);
    parsed.path = parse_path(url.substr(0, question));
    parsed.where = "the SQLite file " + parsed.path;
    url.remove_prefix(std::min(question + 1, url.size()));
    auto parameters = driver::parse_parameters(url);
    parsed.tables = driver::take_table_names(parameters, sql::dialect::sqlite);
    for (const auto& one : parameters) apply(parsed, one);
    return parsed;
}

[[noreturn]] void fail_by_errno(const target& of, int number) {
    const std::string reason = ": " + std::string{std::generic_category().message(number)};
    switch (number) {
        case EACCES:
        case EPERM:
            throw error{errc::access_denied, of.where + " may not be opened" + reason};
        case EROFS:
            throw error{errc::read_only, of.where + " is on a read-only file system"};
        case ENOSPC:
        case EDQUOT:
        case EMFILE:
        case ENFILE:
        case ENOMEM:
            throw error{errc::out_of_resources, of.where + " cannot be made or opened" + reason};
        case ENOTDIR:
        case ELOOP:
        case ENAMETOOLONG:
            throw error{errc::invalid_url, of.where + " cannot be there" + reason};
        default:
            throw error{errc::database_unreachable, of.where + " cannot be opened" + reason};
    }
}

void require_local(const target& of, const std::string& folder) {
    struct statfs found = {};
    // The file itself may be a symbolic link to elsewhere; a new one will be in the folder.
    if (::statfs(of.path.c_str(), &found) != 0 && ::statfs(folder.c_str(), &found) != 0) return;
    if (!is_network(static_cast<std::uint32_t>(found.f_type))) return;
    throw error{errc::unsupported,
                of.where +
                    " is on a network file system, where SQLite's locks cannot be trusted; "
                    "use a local disk, or PostgreSQL or MySQL for several hosts"};
}

// Makes the file with its final mode if there is none. SQLite alone would use the umask.
void make_file(const target& of, const std::string& folder) {
    // Closing any descriptor of a file drops all POSIX locks that this process has on it. The mutex
    // keeps our connections from opening the new file before that.
    const std::lock_guard guard{open_files::instance().guard()};

    struct stat found = {};
    if (::stat(of.path.c_str(), &found) == 0) {
        if (S_ISREG(found.st_mode)) return;
        throw error{errc::invalid_url,
                    of.path + (S_ISDIR(found.st_mode) ? " is a folder" : " is not a regular file") +
                        "; name a file"};
    }
    if (errno != ENOENT) fail_by_errno(of, errno);
    if (::stat(folder.c_str(), &found) != 0 && errno == ENOENT) {
        // Not worth a retry: nothing makes the folder meanwhile.
        throw error{errc::invalid_url, "the folder " + folder +
                                           " of the SQLite URL does not exist: make it, or "
                                           "correct the URL"};
    }
    if (!of.create) {
        throw error{
            errc::database_unreachable,
            of.where + " does not exist, and create is false; make it or allow it to be made"};
    }
    const int made = ::open(of.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (made >= 0) {
        ::close(made);
    } else if (errno != EEXIST) {  // then another process was first
        fail_by_errno(of, errno);
    }
}

std::unique_ptr<open_file> enter_file(const target& of) {
    struct stat found = {};
    if (::stat(of.path.c_str(), &found) != 0) fail_by_errno(of, errno);
    const open_files::identity file{found.st_dev, found.st_ino};
    if (open_files::instance().inherited(file)) {
        throw error{errc::wrong_process,
                    of.where +
                        " was open when this process was forked, and SQLite cannot open it "
                        "again here; fork before it is opened, or start a new program"};
    }
    return std::make_unique<open_file>(file);
}

database_handle open_database(const target& of) {
    sqlite3* opened = nullptr;
    const int code = sqlite3_open_v2(
        of.path.c_str(), &opened,
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE, nullptr);
    database_handle handle{opened};
    if (code != SQLITE_OK) {
        const int reason = opened != nullptr ? sqlite3_system_errno(opened) : 0;
        if (code == SQLITE_CANTOPEN && reason != 0) fail_by_errno(of, reason);
        fail(nullptr, code, of.where);
    }
    sqlite3_extended_result_codes(opened, 1);
    // A misspelt column must not pass as a string.
    sqlite3_db_config(opened, SQLITE_DBCONFIG_DQS_DML, 0, nullptr);
    sqlite3_db_config(opened, SQLITE_DBCONFIG_DQS_DDL, 0, nullptr);
    // SQLite falls back to read-only access by itself.
    if (sqlite3_db_readonly(opened, "main") == 1) {
        if (::access(of.path.c_str(), W_OK) == 0) {
            throw error{errc::out_of_resources,
                        of.where +
                            " could be opened for reading only: raise the limit of open "
                            "files (ulimit -n)"};
        }
        throw error{errc::read_only, explain(errc::read_only, of.where)};
    }
    return handle;
}

void answer_testing_now(sqlite3_context* context, int, sqlite3_value**) {
    const auto& clock = *static_cast<std::function<std::int64_t()>*>(sqlite3_user_data(context));
    try {
        sqlite3_result_int64(context, clock());
    } catch (...) {
        sqlite3_result_error(context, "the testing clock threw", -1);
    }
}

void forget_testing_clock(void* clock) {
    delete static_cast<std::function<std::int64_t()>*>(clock);
}

void register_testing_clock(sqlite3* handle, const target& of) {
    if (!of.testing_clock) return;
    auto clock = std::make_unique<std::function<std::int64_t()>>(of.testing_clock);
    // SQLite deletes it with the connection, and also if this call fails.
    const int code =
        sqlite3_create_function_v2(handle, "rowlock_testing_now", 0, SQLITE_UTF8, clock.release(),
                                   &answer_testing_now, nullptr, nullptr, &forget_testing_clock);
    if (code != SQLITE_OK) fail(handle, code, of.where);
}

// WAL lets readers and one writer work side by side. It is a property of the file, so it is usually
// set.
void require_wal(runner& statements, const target& of, sql::deadline until) {
    if (statements.query("PRAGMA journal_mode", until).text(0, 0) == "wal") return;
    for (int attempt = 0;; ++attempt) {
        try {
            if (statements.query("PRAGMA journal_mode=WAL", until).text(0, 0) == "wal") {
                // Opens the log: until then another connection that closes may delete it.
                statements.query("PRAGMA schema_version", until);
                return;
            }
            throw error{errc::unsupported,
                        of.where + " cannot be switched to WAL mode; use a local file system"};
        } catch (const error& failure) {
            // The switch needs exclusive access to the file and does not always ask the busy
            // handler.
            const int primary = failure.native_code() & 0xff;
            if (primary != SQLITE_BUSY && primary != SQLITE_LOCKED) throw;
            if (!driver::pause_for_lock(attempt, until)) throw;
        }
    }
}

void require_suitable_library() {
    if (sqlite3_libversion_number() < oldest_supported) {
        throw error{errc::unsupported,
                    "SQLite 3.35 or newer is needed; this is " + std::string{sqlite3_libversion()}};
    }
    if (sqlite3_threadsafe() == 0) {
        throw error{errc::unsupported, "this SQLite was built without thread safety"};
    }
}

std::unique_ptr<sql::connection> connect(const target& to, sql::deadline until) {
    if (steady_clock::now() >= until) {
        throw error{errc::database_unreachable, "the deadline had passed; no connection was tried"};
    }
    require_suitable_library();
    const std::string folder = std::filesystem::path{to.path}.parent_path().string();
    require_local(to, folder);
    make_file(to, folder);
    auto file = enter_file(to);
    const open_files::identity identity = file->identity();
    database_handle handle = open_database(to);
    register_testing_clock(handle.get(), to);
    auto made = std::make_unique<own_connection>(std::move(file), std::move(handle), to.where);
    made->statements().watch(to.path, identity);
    require_wal(made->statements(), to, until);
    made->statements().query(
        to.synchronous_full ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", until);
    made->statements().start_counting();
    return made;
}

std::string describe(sqlite3* handle) {
    const char* const path = handle != nullptr ? sqlite3_db_filename(handle, "main") : nullptr;
    if (path == nullptr || *path == '\0') return "the SQLite database";
    return std::string{"the SQLite file "} + path;
}

}  // namespace

sql::connection_source open(const std::string& url, options options) {
    target to = parse(url, std::move(options));
    std::string description = "sqlite:" + to.path;
    auto tables = std::move(to.tables);
    auto connect_to = [to = std::move(to)](sql::deadline until) { return connect(to, until); };
    return sql::connection_source{sql::dialect::sqlite, std::move(connect_to),
                                  std::move(description)}
        .with_tables(std::move(tables));
}

class connection_ref::session final : public runner {
public:
    using runner::runner;
};

connection_ref::connection_ref(sqlite3* handle) {
    require_suitable_library();
    if (handle == nullptr) throw error{errc::invalid_options, "the SQLite handle is null"};
    session_ = std::make_unique<session>(handle, describe(handle));
}

connection_ref::~connection_ref() = default;

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

sql::transaction_state connection_ref::transaction() const noexcept {
    return session_->transaction();
}

sql::notifications* connection_ref::notifications() noexcept {
    return session_.get();
}

std::uint64_t connection_ref::round_trips() const noexcept {
    return session_->round_trips();
}

}  // namespace rowlock::sqlite
