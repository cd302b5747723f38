#include "schema/script.hpp"

#include "sql/table_names.hpp"

namespace rowlock::schema {
namespace {

bool blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

/// Where the dollar-quoted text that starts at `begin` ends, or `begin` itself. PostgreSQL's
/// function bodies are written this way.
std::size_t skip_dollars(std::string_view script, std::size_t begin, sql::dialect which) {
    constexpr std::string_view dollars = "$$";
    if (which != sql::dialect::postgresql || !script.substr(begin).starts_with(dollars)) {
        return begin;
    }
    const std::size_t end = script.find(dollars, begin + dollars.size());
    return end == std::string_view::npos ? script.size() : end + dollars.size();
}

bool quote(char c) {
    return c == '\'' || c == '"' || c == '`';
}

/// Whether only blanks, comments and more semicolons follow on the line.
bool ends_the_line(std::string_view script, std::size_t at, sql::dialect which) {
    while (at < script.size() && script[at] != '\n') {
        if (blank(script[at]) || script[at] == ';') {
            ++at;
            continue;
        }
        const std::size_t end = skip_opaque(script, at, which);
        if (end == at || quote(script[at])) return false;
        if (script.substr(at, end - at).find('\n') != std::string_view::npos) return true;
        at = end;
    }
    return true;
}

void trim_line(std::string& text) {
    while (!text.empty() && blank(text.back())) text.pop_back();
}

/// Trims line by line while the text is built, to remove what a comment leaves behind: blanks at
/// the end of a line, empty lines. Lines within a literal are left alone.
void append_newline(std::string& text) {
    trim_line(text);
    if (!text.empty() && text.back() != '\n') text.push_back('\n');
}

void finish(std::string& statement, std::vector<std::string>& statements) {
    while (!statement.empty() && (blank(statement.back()) || statement.back() == '\n')) {
        statement.pop_back();
    }
    if (!statement.empty()) statements.push_back(std::move(statement));
    statement.clear();
}

}  // namespace

std::vector<std::string> split_statements(std::string_view script, sql::dialect which) {
    std::vector<std::string> statements;
    std::string statement;
    for (std::size_t at = 0; at < script.size();) {
        const char c = script[at];
        if (const std::size_t end = skip_dollars(script, at, which); end != at) {
            statement.append(script.substr(at, end - at));
            at = end;
            continue;
        }
        if (const std::size_t end = skip_opaque(script, at, which); end != at) {
            const std::string_view opaque = script.substr(at, end - at);
            if (quote(c)) {
                statement.append(opaque);
            } else if (opaque.back() == '\n') {
                append_newline(statement);
            } else if (!statement.empty()) {
                statement.push_back(' ');  // a comment separates words
            }
            at = end;
            continue;
        }
        if (c == '\n') {
            append_newline(statement);
        } else if (c == ';' && ends_the_line(script, at + 1, which)) {
            finish(statement, statements);
        } else if (!(statement.empty() && blank(c))) {
            statement.push_back(c);
        }
        ++at;
    }
    finish(statement, statements);
    return statements;
}

}  // namespace rowlock::schema
