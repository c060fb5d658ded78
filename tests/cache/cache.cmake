# The model check, and mutants of the cache that it must notice. The mutants are one program over headers in which they all
# are; KAIJU_MUTANT names the one that a process is. A mutant whose words are no longer in the headers stops the configuration.
add_executable(cache_model_check cache/model_check.cpp)
target_include_directories(cache_model_check PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(cache_model_check PRIVATE kaiju_core kaiju_flags)
add_test(NAME cache_model COMMAND cache_model_check 1000000 50 5)
set_tests_properties(cache_model PROPERTIES PASS_REGULAR_EXPRESSION "^no difference")

set(mutants ${CMAKE_CURRENT_BINARY_DIR}/mutants)
file(REMOVE_RECURSE ${mutants})
file(WRITE ${mutants}/mutants.hpp [[
#pragma once
#include <cstdlib>
#include <cstring>
inline bool is_mutant(const char* name) {
  const char* mutant = std::getenv("KAIJU_MUTANT");
  return mutant && std::strcmp(mutant, name) == 0;
}
]])
add_executable(cache_mutants cache/model_check.cpp)
target_include_directories(cache_mutants BEFORE PRIVATE ${mutants} ${PROJECT_SOURCE_DIR})
target_link_libraries(cache_mutants PRIVATE kaiju_core kaiju_flags)

# kaiju_mutant(NAME EXPECTED FILE FROM TO [FILE FROM TO]...): FROM and TO are statements with their semicolons, or expressions.
function(kaiju_mutant name expected)
  file(APPEND ${mutants}/mutants.hpp "inline const bool mutant_${name} = is_mutant(\"${name}\");\n")
  math(EXPR last "${ARGC} - 1")
  foreach(i RANGE 2 ${last} 3)
    math(EXPR j "${i} + 1")
    math(EXPR k "${i} + 2")
    set(file kaiju/cache/${ARGV${i}})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/${file})
    if(EXISTS ${mutants}/${file})
      file(READ ${mutants}/${file} text)
    else()
      file(READ ${PROJECT_SOURCE_DIR}/include/${file} text)
      string(PREPEND text "#include \"mutants.hpp\"\n")
    endif()
    string(FIND "${text}" "${ARGV${j}}" place)
    if(place EQUAL -1)
      message(FATAL_ERROR "mutant ${name}: ${file} no longer says: ${ARGV${j}}")
    endif()
    if("${ARGV${j}}" MATCHES ";$")
      set(either "{ if (mutant_${name}) { ${ARGV${k}} } else ${ARGV${j}} }")
    else()
      set(either "(mutant_${name} ? (${ARGV${k}}) : (${ARGV${j}}))")
    endif()
    string(REPLACE "${ARGV${j}}" "${either}" text "${text}")
    file(WRITE ${mutants}/${file} "${text}")
  endforeach()
  add_test(NAME cache_mutant_${name} COMMAND cache_mutants ${mutant_run})
  set_tests_properties(cache_mutant_${name} PROPERTIES ENVIRONMENT KAIJU_MUTANT=${name} PASS_REGULAR_EXPRESSION "^${expected}")
endfunction()

set(mutant_run 40000 20 4)
set(same_tokens "std::memcmp(node.tokens, key.tokens.data(), key.tokens.size_bytes()) == 0")
set(hash "return {out.low64, out.high64};")
set(weak "return {out.low64 & 3, out.high64 & 3};")

# Not a mutant: names that collide all the time cost time and nothing else.
kaiju_mutant(none_weak_names "no difference" name.hpp "${hash}" "${weak}")
kaiju_mutant(tokens_not_compared difference name.hpp "${hash}" "${weak}" prefix_tree.hpp "${same_tokens}" "true")
kaiju_mutant(salt_dropped difference name.hpp "text.domain = domain;" "text.domain = BlockName();" prefix_tree.hpp "node.domain == key.domain" "true")
kaiju_mutant(salt_of_tails_dropped difference prefix_tree.hpp "(!shared && node.domain != regions.own)" "false")
kaiju_mutant(last_token_dropped difference prefix_tree.hpp "${same_tokens}" "std::memcmp(node.tokens, key.tokens.data(), key.tokens.size_bytes() - sizeof(int32_t)) == 0"
             name.hpp "2 * sizeof(BlockName) + static_cast<size_t>(count) * sizeof(int32_t)" "2 * sizeof(BlockName) + static_cast<size_t>(count - 1) * sizeof(int32_t)")
kaiju_mutant(reference_dropped difference prefix_tree.hpp "++node(id).refs;" "")
kaiju_mutant(window_reference_dropped difference prefix_tree.hpp "++node(id).window_refs;" "")
kaiju_mutant(write_mask_dropped difference lease.hpp "return ready_ * kBlockTokens;" "return 0;")
kaiju_mutant(epoch_dropped difference prefix_tree.hpp "purge(static_cast<DomainId>(id));" "continue;" prefix_tree.hpp "Namer(options_.key, identity(epoch))" "Namer(options_.key, identity(0))")
kaiju_mutant(window_taken_too_early difference prefix_tree.hpp "std::max(0, position - window_ + 1)" "std::max(0, position - window_ + 2)")
kaiju_mutant(copy_dropped difference detail/lease_start.hpp "enter_block(tree, tree.at(copy_source_).block, found.resume, found.tail != kNoNode, sink);"
             "enter_block(tree, tree.at(copy_source_).block, found.resume, false, sink);")
kaiju_mutant(wanted_global_stays_spare difference detail/prefix_tree_nodes.hpp "if (at(id).has(BlockKind::kGlobal)) pool_.set_spare(BlockKind::kGlobal, at(id).block[BlockKind::kGlobal], false);" "")
kaiju_mutant(wanted_window_stays_spare difference detail/prefix_tree_nodes.hpp "pool_.set_spare(BlockKind::kWindow, at(id).block[BlockKind::kWindow], false);" "")
kaiju_mutant(points_need_no_nodes difference detail/prefix_tree_nodes.hpp "own.points == 0 && own.kept_children == 0" "own.kept_children == 0")
# Shares: seeds that are no multiple of three have them.
set(mutant_run 400000 30 1)
kaiju_mutant(floor_dropped difference detail/cache_shares.hpp "return share.limits.cache_floor_bytes > 0 && share.bytes - node_bytes_ < share.limits.cache_floor_bytes;" "return false;")
kaiju_mutant(floor_in_slabs_dropped difference detail/prefix_tree_shares.hpp "if (!shares_.may_go(share, pass, claimant)) return false;" "")
kaiju_mutant(other_share_below_dropped difference prefix_tree.hpp "parent == kRoot || share_of(id) == share_of(parent)" "true" detail/invariants.hpp "tree.share_of(child) == tree.share_of(id)" "true")
kaiju_mutant(charge_dropped difference detail/prefix_tree_nodes.hpp "shares_.charge(share_of(id), -pool_.block_bytes(kind));" "")
kaiju_mutant(ceiling_dropped difference detail/prefix_tree_shares.hpp "if (share.limits.cache_ceiling_bytes == 0) return;" "return;")
# The same in lower tiers.
set(mutant_run 400000 20 1)
kaiju_mutant(salt_below_dropped difference name.hpp "text.domain = domain;" "text.domain = BlockName();" tiers.hpp "stored.domain == domain" "true")
kaiju_mutant(salt_of_tails_below_dropped difference tiers.hpp "(!shared && stored.domain != regions.own)" "false")
kaiju_mutant(parent_below_not_compared difference name.hpp "${hash}" "${weak}" tiers.hpp "stored.parent == parent" "true")
kaiju_mutant(failed_copy_down_used difference tiers.hpp "stored.gone || failed(i)" "stored.gone")
kaiju_mutant(failed_copy_up_used difference promotion.hpp "piece.kind == BlockKind::kGlobal && failed(first_transfer_ + i)" "false")
