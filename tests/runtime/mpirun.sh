#!/bin/sh
# mpirun.sh RANKS PROGRAM…: as any user, on any number of cores, quiet about what it thinks of that.
ranks=$1
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_orte_base_help_aggregate=0
exec mpirun --oversubscribe --bind-to none -q -n "$ranks" "$@"
