#include "sql/statements.hpp"

#include "base/embedded.hpp"
#include "sql/table_names.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

/// Keyed by name. A dialect's own statement takes precedence over one that it shares: two_step.sql
/// has what the dialects write alike that change rows one by one, servers.sql what only servers
/// need, common.sql what all write alike.
using written_map = std::map<std::string_view, written_statement, std::less<>>;

written_map read_statements(dialect which) {
    std::vector<std::string> files{std::string{to_string(which)} + ".sql"};
    if (which != dialect::postgresql) files.emplace_back("two_step.sql");
    if (which != dialect::sqlite) files.emplace_back("servers.sql");
    files.emplace_back("common.sql");
    written_map all;
    for (const auto& name : files) {
        for (const auto& file : embedded::statement_files()) {
            if (file.path.substr(file.path.rfind('/') + 1) != name) continue;
            for (const auto& each : sections_of(file.text, "statement")) {
                all.emplace(each.name, written_statement{each.name, file.path, each.text});
            }
        }
    }
    return all;
}

template <dialect which>
const written_map& read_once() {
    static const written_map all = read_statements(which);
    return all;
}

/// Those of the other dialects are not read: most processes use one.
const written_map& statements_of(dialect which) {
    switch (which) {
        case dialect::postgresql:
            return read_once<dialect::postgresql>();
        case dialect::mysql:
            return read_once<dialect::mysql>();
        case dialect::sqlite:
            break;
    }
    return read_once<dialect::sqlite>();
}

using fragment_map = std::map<std::string, std::string, std::less<>>;

const std::string* find_in(const fragment_map& fragments, std::string_view name) {
    const auto found = fragments.find(name);
    return found == fragments.end() ? nullptr : &found->second;
}

/// The fragment `name(x)` with `argument` in the place of each {x} in it; nullopt if there is none.
std::optional<std::string> call(std::string_view name, std::string_view argument,
                                const fragment_map& fragments) {
    const auto* const body = find_in(fragments, std::string{name} + "(x)");
    if (body == nullptr) return std::nullopt;
    constexpr std::string_view parameter = "{x}";
    std::string text = *body;
    for (auto at = text.find(parameter); at != std::string::npos;
         at = text.find(parameter, at + argument.size())) {
        text.replace(at, parameter.size(), argument);
    }
    return text;
}

/// What stands for {what}: the piece or else the fragment of that name, or a fragment with an
/// argument, {name(argument)}.
std::string replacement_of(std::string_view what, const fragment_map& pieces,
                           const fragment_map& fragments) {
    const auto* found = find_in(pieces, what);
    if (found == nullptr) found = find_in(fragments, what);
    if (found != nullptr) return *found;
    const auto open = what.find('(');
    if (open != std::string_view::npos && what.ends_with(')')) {
        const auto argument = what.substr(open + 1, what.size() - open - 2);
        if (auto text = call(what.substr(0, open), argument, fragments)) return std::move(*text);
    }
    throw error{errc::database_error, "an embedded statement names an unknown fragment"};
}

/// Replaces all {…}, the innermost first; what replaces one may contain others. {name(…)} stands
/// for the fragment name(x).
std::string expand(std::string text, const fragment_map& pieces, const fragment_map& fragments) {
    for (auto close = text.find('}'); close != std::string::npos; close = text.find('}')) {
        const auto open = text.rfind('{', close);
        const auto name =
            open == std::string::npos ? std::string{} : text.substr(open + 1, close - open - 1);
        text.replace(open == std::string::npos ? 0 : open, name.size() + 2,
                     replacement_of(name, pieces, fragments));
    }
    return text;
}

/// Where a type's name or another name ends that begins at `at`.
std::size_t end_of_name(std::string_view text, std::size_t at) {
    constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789_.[]";
    return std::min(text.find_first_not_of(letters, at), text.size());
}

/// The text without what only PostgreSQL needs (docs/adr/0033) and the others do not know: the type
/// of a value, `::bigint`, and `pg_catalog.` before the name of a function or an operator.
std::string without_types(std::string_view text) {
    constexpr std::string_view schema = "pg_catalog.", named = "operator(pg_catalog.";
    std::string kept;
    while (!text.empty()) {
        const auto rest = text;
        if (rest.starts_with("::")) {
            text.remove_prefix(end_of_name(rest, 2));
        } else if (rest.starts_with(named)) {
            const auto close = rest.find(')');
            kept += rest.substr(named.size(), close - named.size());
            text.remove_prefix(close + 1);
        } else if (rest.starts_with(schema)) {
            text.remove_prefix(schema.size());
        } else {
            const auto quoted =
                rest.front() == '\'' ? std::min(rest.find('\'', 1), rest.size() - 1) : 0;
            kept += rest.substr(0, quoted + 1);
            text.remove_prefix(quoted + 1);
        }
    }
    return kept;
}

/// A dialect's own fragment takes precedence over one of common.sql.
fragment_map load_fragments(dialect which, bool testing_clock) {
    constexpr std::string_view folder = "sql/fragments/";
    fragment_map fragments;
    for (const auto name : {std::string_view{to_string(which)}, std::string_view{"common"}}) {
        const std::string path = std::string{folder}.append(name).append(".sql");
        for (const auto& file : embedded::statement_files()) {
            if (file.path != path) continue;
            for (const auto& each : sections_of(file.text, "fragment")) {
                fragments.emplace(each.name, without_comments(each.text));
            }
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
            return qualify(text, speaks, options.tables);
        }
        return qualify_found(text, speaks, options.found_in, options.tables.prefix);
    }

    [[nodiscard]] const written_statement& written(std::string_view name) const {
        const auto& all = statements_of(speaks);
        if (const auto found = all.find(name); found != all.end()) return found->second;
        throw error{errc::unsupported, "this dialect has no statement " + std::string{name}};
    }

    [[nodiscard]] std::string text_of(const written_statement& what,
                                      const fragment_map& pieces) const {
        auto text = expand(without_comments(what.text), pieces, fragments);
        if (speaks != dialect::postgresql) text = without_types(text);
        // The tag shows in the server's list of running statements.
        return "/* rowlock " + std::string{what.name} + " */ " + qualified(text);
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
    validate_names(speaks, options.tables);
}

statement statement_set::operator()(std::string_view name) const {
    const std::lock_guard lock{state_->mutex};
    if (const auto known = state_->loaded.find(name); known != state_->loaded.end()) {
        return known->second;
    }
    const auto& what = state_->written(name);
    return state_->loaded.emplace(what.name, state_->text_of(what, {})).first->second;
}

std::string statement_set::text_of(std::string_view name,
                                   std::initializer_list<piece> pieces) const {
    fragment_map filled;
    for (const auto& each : pieces) filled.emplace(each.name, each.text);
    return state_->text_of(state_->written(name), filled);
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
