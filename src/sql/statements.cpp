#include "sql/statements.hpp"

#include "base/embedded.hpp"
#include "sql/table_names.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::sql {
namespace {

/// A part of a file: from after the line `-- <what> <name>` up to the next such line.
struct section {
    std::string_view name;
    std::string_view text;
};

std::vector<section> sections_of(std::string_view file, std::string_view what) {
    const std::string marker = "-- " + std::string{what} + " ";
    const auto next_mark = [&](std::size_t from) {
        for (auto at = file.find(marker, from); at != std::string_view::npos;
             at = file.find(marker, at + 1)) {
            if (at == 0 || file[at - 1] == '\n') return at;
        }
        return file.size();
    };
    std::vector<section> found;
    for (auto at = next_mark(0); at < file.size();) {
        const auto name_at = at + marker.size();
        const auto text_at = std::min(file.find('\n', name_at), file.size());
        at = next_mark(text_at);
        found.push_back(
            {file.substr(name_at, text_at - name_at), file.substr(text_at, at - text_at)});
    }
    return found;
}

/// Keyed by name. A dialect's own statement takes precedence over one of common.sql.
using written_map = std::map<std::string_view, written_statement, std::less<>>;

written_map read_statements(dialect which) {
    const std::string own = std::string{to_string(which)} + ".sql";
    written_map all;
    for (const bool common : {false, true}) {
        for (const auto& file : embedded::statement_files()) {
            const auto last = file.path.substr(file.path.rfind('/') + 1);
            if (last != (common ? "common.sql" : own)) continue;
            for (const auto& each : sections_of(file.text, "statement")) {
                all.emplace(each.name, written_statement{each.name, file.path, each.text});
            }
        }
    }
    return all;
}

const written_map& statements_of(dialect which) {
    static const written_map postgresql = read_statements(dialect::postgresql);
    static const written_map mysql = read_statements(dialect::mysql);
    static const written_map sqlite = read_statements(dialect::sqlite);
    if (which == dialect::postgresql) return postgresql;
    return which == dialect::mysql ? mysql : sqlite;
}

using fragment_map = std::map<std::string, std::string, std::less<>>;

/// Replaces {name} by the fragment of that name; fragments may contain others.
std::string expand(std::string text, const fragment_map& fragments) {
    for (auto open = text.find('{'); open != std::string::npos; open = text.find('{', open)) {
        const auto close = text.find('}', open);
        const auto found = fragments.find(text.substr(open + 1, close - open - 1));
        if (close == std::string::npos || found == fragments.end()) {
            throw error{errc::database_error, "an embedded statement names an unknown fragment"};
        }
        text.replace(open, close - open + 1, found->second);
    }
    return text;
}

fragment_map load_fragments(dialect which, bool testing_clock) {
    const std::string path = "sql/fragments/" + std::string{to_string(which)} + ".sql";
    fragment_map fragments;
    for (const auto& file : embedded::statement_files()) {
        if (file.path != path) continue;
        for (const auto& each : sections_of(file.text, "fragment")) {
            fragments.emplace(each.name, without_comments(each.text));
        }
    }
    if (testing_clock) fragments["now"] = "rowlock_testing_now()";
    return fragments;
}

}  // namespace

struct statement_set::state {
    state(sql::dialect dialect, const statement_options& which)
        : speaks{dialect},
          options{which},
          fragments{load_fragments(dialect, which.testing_clock)} {}

    [[nodiscard]] std::string qualified(std::string_view text) const {
        if (options.found_in.empty()) {
            return qualify(text, speaks, options.schema, options.prefix);
        }
        return qualify_found(text, speaks, options.found_in, options.prefix);
    }

    [[nodiscard]] statement load(const written_statement& written) const {
        // The tag shows in the server's list of running statements.
        return statement{"/* rowlock " + std::string{written.name} + " */ " +
                         qualified(expand(without_comments(written.text), fragments))};
    }

    const sql::dialect speaks;
    const statement_options options;
    const fragment_map fragments;
    found_schema found_in;
    std::mutex mutex;
    std::map<std::string_view, statement, std::less<>> loaded;  ///< keys: of the embedded files
};

statement_set::statement_set(sql::dialect speaks, const statement_options& options)
    : state_{std::make_shared<state>(speaks, options)} {
    validate_names(speaks, options.schema, options.prefix);
}

std::optional<statement> statement_set::maybe(std::string_view name) const {
    const std::lock_guard lock{state_->mutex};
    if (const auto known = state_->loaded.find(name); known != state_->loaded.end()) {
        return known->second;
    }
    const auto& all = statements_of(state_->speaks);
    const auto written = all.find(name);
    if (written == all.end()) return std::nullopt;
    return state_->loaded.emplace(written->first, state_->load(written->second)).first->second;
}

statement statement_set::operator()(std::string_view name) const {
    if (auto found = maybe(name)) return *std::move(found);
    throw error{errc::unsupported, "this dialect has no statement " + std::string{name}};
}

dialect statement_set::speaks() const noexcept {
    return state_->speaks;
}

const statement_options& statement_set::options() const noexcept {
    return state_->options;
}

std::string statement_set::qualified(std::string_view text) const {
    return state_->qualified(text);
}

found_schema& statement_set::found_in() const noexcept {
    return state_->found_in;
}

statements::statements(const statement_set& load)
    : all{load},
      speaks{load.speaks()},
      prefix{load.options().prefix},
      lease_table{load.qualified("rowlock_lease")},
      open_session{load("open_session")},
      heartbeat{load("heartbeat")},
      session_state{load("session_state")},
      end_expired_session{load("end_expired_session")},
      end_session{load("end_session")},
      delete_session{load("delete_session")},
      bump_revision{load("bump_revision")},
      extend_session{load("extend_session")},
      wake_address{load("wake_address")},
      meet_server{load.maybe("meet_server")},
      acquire{load.maybe("acquire")},
      take{load.maybe("take")},
      insert_lease{load.maybe("insert_lease")},
      release_durably{load.maybe("release_durably")},
      reacquire{load("reacquire")},
      acquire_all{load.maybe("acquire_all")},
      reacquire_all{load.maybe("reacquire_all")},
      probe_held{load.maybe("probe_held")},
      probe_all{load.maybe("probe_all")},
      release_all{load.maybe("release_all")},
      take_all{load.maybe("take_all")},
      insert_all{load.maybe("insert_all")},
      lock_all{load.maybe("lock_all")},
      take_locked{load.maybe("take_locked")},
      release_locked{load.maybe("release_locked")},
      confirm_lease{load.maybe("confirm_lease")},
      probe{load("probe")},
      release{load("release")},
      find_grant{load("find_grant")},
      confirm_grant{load("confirm_grant")},
      session_leases{load("session_leases")},
      held_leases{load("held_leases")},
      force_release{load("force_release")},
      lock_lease{load("lock_lease")},
      shorten_lease{load("shorten_lease")},
      predecessors{load("predecessors")},
      reclaim_lease{load("reclaim_lease")},
      inspect{load("inspect")},
      list{load("list")},
      names_with_waiters{load("names_with_waiters")},
      free_with_waiters{load("free_with_waiters")},
      queue{load("queue")},
      served_of{load.maybe("served_of")},
      release_unwaited{load.maybe("release_unwaited")},
      fence{load("fence")},
      release_on_commit{load("release_on_commit")},
      fence_view{load.maybe("fence_view")},
      fence_write{load.maybe("fence_write")},
      reap_sessions{load("reap_sessions")},
      publish_floor{load("publish_floor")},
      idle_leases{load("idle_leases")},
      raise_floor{load("raise_floor")},
      lift_floor{load("lift_floor")},
      read_floor{load("read_floor")},
      ended_sessions{load("ended_sessions")},
      ended_holders{load("ended_holders")},
      delete_ended_sessions{load.maybe("delete_ended_sessions")},
      delete_ended_session{load.maybe("delete_ended_session")},
      reap_leases{load.maybe("reap_leases")},
      reap_waiters{load.maybe("reap_waiters")},
      delete_leases{load.maybe("delete_leases")},
      lease_pages{load.maybe("lease_pages")},
      next_name{load.maybe("next_name")},
      orphans{load.maybe("orphans")},
      free_orphan{load.maybe("free_orphan")},
      dead_waiters{load.maybe("dead_waiters")},
      delete_waiter{load.maybe("delete_waiter")},
      deletable_leases{load.maybe("deletable_leases")},
      delete_lease{load.maybe("delete_lease")},
      history_there{load("history_there")},
      old_history{load("old_history")},
      delete_history{load("delete_history")},
      session_setup{load.maybe("session_setup")},
      session_setup_only{load.maybe("session_setup_only")},
      server_identity{load.maybe("server_identity")},
      server_timeline{load.maybe("server_timeline")} {}

statement load_statement(dialect which, std::string_view name, const statement_options& options) {
    return statement_set{which, options}(name);
}

std::vector<written_statement> written_statements(dialect which) {
    std::vector<written_statement> all;
    for (const auto& [name, each] : statements_of(which)) all.push_back(each);
    return all;
}

std::string without_comments(std::string_view text) {
    std::string kept;
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size() - 1);
        const auto line = text.substr(0, end + 1);
        if (!line.starts_with("--")) kept += line;
        text.remove_prefix(end + 1);
    }
    while (!kept.empty() && (kept.back() == '\n' || kept.back() == ' ')) kept.pop_back();
    while (!kept.empty() && kept.front() == '\n') kept.erase(0, 1);
    return kept;
}

}  // namespace rowlock::sql
