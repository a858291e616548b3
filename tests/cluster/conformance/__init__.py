"""What stock Mesos's own tests claim of an allocator, and what they leave out, claimed of ours.

Rows 1-40
=========

| rows | module |
|---|---|
| 1-6 (UnreservedDRF … SameShareFairness), 20, 21 | `test_sorter` |
| 7-13 (OfferFilter … RemoveFilters) | `test_offer_filters` |
| 14-19, 22, 28-34, 38, 40 (what may be offered to whom) | `test_eligibility` |
| 23-27, 35-37, 39 (resources that become others, more or less) | `test_resource_changes` |

Rows 41-60
==========

The names are those of the stock tests; ours are in `test_quota` unless a module is given, and
begin with `test_`.

| row | stock test | ours |
|---|---|---|
| 41 | QuotaProvidesGuarantee | what_a_quota_role_declines_is_held_back_... |
| 42 | RemoveQuota | without_its_quota_a_role_shares_like_any_other, a_quota_can_be_removed_twice |
| 43 | MultipleFrameworksInRoleWithQuota | frameworks_share_the_quota_of_their_role_fairly_... |
| 44 | QuotaAllocationGranularity | an_agent_is_chopped_to_the_guarantee_... |
| 45 | QuotaAllocationGranularityUnchoppableResource | a_mount_disk_bigger_than_... |
| 46 | QuotaAllocationMultipleDisk | plain_and_mount_disks_fill_a_disk_quota_together_... |
| 47 | QuotaRoleAllocateNonQuotaResource | what_a_quota_does_not_name_comes_as_company_... |
| 48 | DRFWithQuota | a_satisfied_quota_role_gets_no_more_... |
| 49 | QuotaAgainstStarvation | a_quota_brings_circulating_resources_to_a_starving_role |
| 50 | QuotaAbsentFramework | the_quota_of_a_role_without_frameworks_is_set_aside_... |
| 51 | MultiQuotaAbsentFrameworks | a_quota_role_without_frameworks_does_not_block_... |
| 52 | MultiQuotaWithFrameworks | a_satisfied_quota_role_of_small_share_does_not_starve_... |
| 53 | DisproportionateQuotaVsAllocation | only_names_that_are_still_missing_are_given |
| 54 | ReservationWithinQuota | reserved_and_unreserved_resources_together_satisfy_a_quota |
| 54 | ReservationUnallocated | a_reservation_counts_towards_quota_while_nobody_holds_it |
| 54 | ReservationAllocated | a_reservation_counts_towards_quota_while_it_is_held |
| 55 | QuotaSetAsideReservedResources | what_is_held_back_for_quota_is_not_taken_from_... |
| 55 | NonQuotaRoleReservationWithQuotaRole | a_role_without_quota_is_offered_its_reservations_... |
| 56 | QuotaHeadroomWhenReservationsExceedQuota | reservations_beyond_one_roles_quota_... |
| 57 | QuotaWithAncestorReservations | a_parents_reservation_held_by_its_child_... |
| 57 | QuotaWithNestedRoleReservation | a_subroles_reservation_counts_towards_its_parents_quota |
| 58 | QuotaAccountingReserveAllocatedResources | reserving_what_is_held_leaves_... |
| 58 | QuotaAccountingUnreserveAllocatedResources | unreserving_what_is_held_leaves_... |
| 59 | ResourceMetrics | totals_and_allocations_are_told_by_resource |
| 59 | AllocationRunsMetric | a_burst_of_calls_is_one_run |
| 59 | DominantShareMetrics | dominant_shares_are_told_and_end_with_their_role |
| 60 | SharedAllocatedResourceQuotaAccounting | a_shared_volume_held_twice_... |

What stock Mesos does not test
==============================

Ours are in `test_lifecycle` unless a module is given.

| behaviour | ours |
|---|---|
| `Recover`: hold-off of 80 %, 10 min, no agents, `Resume` during it | `test_failover_recovery` |
| `RemoveAgent`, then a late `RecoverResources` | an_agent_that_goes_frees_all_... |
| the same agent's id again | an_agent_that_comes_back_..., ..._in_one_message_... |
| `UpdateFramework` while inactive | a_framework_that_is_updated_while_inactive_... |
| a role left with leftovers | a_role_that_was_left_... |
| an inverse offer outstanding after a deactivation | ..._deactivated_while_... |
| over-release | giving_back_more_than_is_held_... |
| `UpdateAvailable` against an offer on its way | an_operation_fails_when_... |
| a snapshot against the full log of calls | `test_resync` |

What its sorter's tests claim (`sorter_tests.cpp`), and `NestedRoleDRF`, is in `test_role_tree`.
"""
