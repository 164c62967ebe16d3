// For those who vendor the whole repository.
import 'mixin/mixin.libsonnet'
