#include "schema/catalog.hpp"

#include <rowlock/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>

namespace rowlock::schema {
namespace {

constexpr std::string_view up_suffix = ".up.sql";
constexpr std::string_view down_suffix = ".down.sql";

/// "0001_initial.up.sql"
struct file_name {
    int version;
    std::string_view name;
    bool up;
};

std::optional<file_name> parse(std::string_view text) {
    const bool up = text.ends_with(up_suffix);
    if (!up && !text.ends_with(down_suffix)) return std::nullopt;
    text.remove_suffix(up ? up_suffix.size() : down_suffix.size());
    int version = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), version);
    if (failure != std::errc{} || version < 0) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.size() < 2 || text.front() != '_') return std::nullopt;
    return file_name{version, text.substr(1), up};
}

[[noreturn]] void refuse(const std::string& what) {
    throw error{errc::database_error, "this build of rowlock is damaged: " + what};
}

}  // namespace

std::string migration::checksum() const {
    return hexadecimal(fingerprint(up));
}

std::string migration::title() const {
    return "migration " + std::to_string(version) + " (" + std::string{name} + ")";
}

std::optional<int> migration::oldest_library() const {
    constexpr std::string_view label = "\n-- oldest library: ";
    const auto at = up.find(label);
    if (at == std::string_view::npos) return std::nullopt;
    const auto digits = up.substr(at + label.size());
    int number = 0;
    const auto [end, failure] =
        std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool ends = end != digits.data() + digits.size() && *end == '\n';
    if (failure != std::errc{} || !ends || number < 1 || number > version) {
        refuse(title() + " names no library");
    }
    return number;
}

const migration& catalog::at(int version) const {
    return numbered.at(static_cast<std::size_t>(version) - 1);
}

catalog read_catalog(std::span<const embedded::file> files, sql::dialect which) {
    const std::string folder = std::string{to_string(which)} + "/";
    std::map<int, migration> found;
    for (const auto& file : files) {
        if (!file.path.starts_with(folder)) continue;
        const auto parsed = parse(file.path.substr(folder.size()));
        if (!parsed) refuse("it has a migration file with an unknown kind of name");
        migration& step = found[parsed->version];
        if (!step.name.empty() && step.name != parsed->name) {
            refuse("it has two migrations " + std::to_string(parsed->version));
        }
        step.version = parsed->version;
        step.name = parsed->name;
        (parsed->up ? step.up : step.down) = file.text;
    }

    catalog made;
    int expected = 0;
    for (const auto& [version, step] : found) {
        if (version != expected++ || step.up.empty() || step.down.empty()) {
            refuse("a migration file is missing before or at " + step.title());
        }
        if (version == 0) {
            made.record = step;
        } else {
            made.numbered.push_back(step);
        }
    }
    if (made.numbered.empty()) refuse("it has no migrations for " + std::string{to_string(which)});
    return made;
}

const catalog& library_catalog(sql::dialect which) {
    static const auto catalogs = [] {
        using enum sql::dialect;
        const auto files = embedded::migration_files();
        return std::array{read_catalog(files, postgresql), read_catalog(files, mysql),
                          read_catalog(files, sqlite)};
    }();
    return catalogs.at(static_cast<std::size_t>(which));
}

int verified_version(const std::vector<recorded_migration>& rows, const catalog& known) {
    const bool too_new = std::ranges::any_of(rows, [&](const auto& row) {
        return row.version > known.latest() &&
               row.oldest_library.value_or(row.version) > known.latest();
    });
    if (too_new) {
        throw error{errc::schema_outdated,
                    "the database has migration " + std::to_string(rows.back().version) +
                        ", this rowlock knows up to " + std::to_string(known.latest()) +
                        ": upgrade rowlock"};
    }
    int version = 0;
    for (const auto& row : rows) {
        if (row.version != ++version) {
            throw error{errc::schema_outdated,
                        "the database has no record of migration " + std::to_string(version) +
                            ", but one of a later migration: restore the record, or remove the "
                            "rowlock tables and migrate anew"};
        }
        if (version <= known.latest() && row.checksum != known.at(version).checksum()) {
            throw error{errc::schema_outdated,
                        known.at(version).title() +
                            " of the database is not the one of this rowlock: use the rowlock that "
                            "made the tables, or take them down with it and migrate anew"};
        }
    }
    return version;
}

std::uint64_t fingerprint(std::string_view text) noexcept {
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (const char c : text) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3U;
    }
    return hash;
}

std::string hexadecimal(std::uint64_t number) {
    std::string digits(16, '0');
    for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, number >>= 4U) {
        *digit = "0123456789abcdef"[number & 15U];
    }
    return digits;
}

}  // namespace rowlock::schema
