"""Parameters: settings by component, vhost and name, that plugins and operators keep in a broker.

A vhost's limits (component "vhost-limits", name "limits") are in force here. What no part of this broker understands
(shovel, federation-upstream, ...) is kept and exported again, and nothing is done with it. Policies and operator
policies are parameters of RabbitMQ's too; here they have a place of their own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

from warren.broker.events import Events
from warren.broker.limits import check_vhost_limits
from warren.broker.store.catalog import Catalog
from warren.errors import InvalidArgument, NotFound
from warren.routing.definitions import GlobalParameter, Parameter
from warren.routing.values import Table

__all__ = ["VHOST_LIMITS", "Parameters", "check_parameter", "no_vhost"]

VHOST_LIMITS: Final = "vhost-limits"
LIMITS: Final = "limits"  # the one name that a parameter of that component has


def no_vhost(name: str) -> NotFound:
    return NotFound(f"no vhost '{name}'")


def check_parameter(parameter: Parameter) -> None:
    """Nothing, when the parameter may be set. Raises InvalidArgument."""
    if parameter.component in ("policy", "operator_policy"):
        raise InvalidArgument("policies may not be set using this method")
    if parameter.component == VHOST_LIMITS:
        if parameter.name != LIMITS:
            raise InvalidArgument(f"{VHOST_LIMITS}: the name must be '{LIMITS}', not '{parameter.name}'")
        if not isinstance(parameter.value, dict):
            raise InvalidArgument(f"{VHOST_LIMITS}: the value must be an object")
        check_vhost_limits(parameter.value)


class Parameters:
    """`parameters` by (vhost, component, name), `global_parameters` by name. Read them; change them by the methods.

    `vhosts` has the names of those that exist. Changes go to the catalog, and are told as events.
    """

    def __init__(self, vhosts: Container[str], catalog: Catalog, events: Events) -> None:
        self._vhosts, self._catalog, self._events = vhosts, catalog, events
        self.parameters: dict[tuple[str, str, str], Parameter] = {}
        self.global_parameters: dict[str, GlobalParameter] = {}

    def set(self, parameter: Parameter) -> None:
        """Keep the parameter in place of one of that name. NotFound without its vhost, InvalidArgument if it is bad."""
        check_parameter(parameter)
        if parameter.vhost not in self._vhosts:
            raise no_vhost(parameter.vhost)
        self.parameters[parameter.vhost, parameter.component, parameter.name] = parameter
        self._catalog.put_parameter(parameter)
        self._events.parameter("set", parameter)

    def clear(self, vhost: str, component: str, name: str) -> bool:
        """Forget the parameter; whether there was one."""
        parameter = self.parameters.pop((vhost, component, name), None)
        if parameter is None:
            return False
        self._catalog.remove_parameter(vhost, component, name)
        self._events.parameter("cleared", parameter)
        return True

    def set_global(self, parameter: GlobalParameter) -> None:
        self.global_parameters[parameter.name] = parameter
        self._catalog.put_global_parameter(parameter)
        self._events.global_parameter(parameter.name, parameter.value)

    def clear_global(self, name: str) -> bool:
        """Forget the global parameter; whether there was one."""
        if self.global_parameters.pop(name, None) is None:
            return False
        self._catalog.remove_global_parameter(name)
        self._events.global_parameter(name, None)
        return True

    def set_limits(self, vhost: str, limits: Table) -> None:
        """Give a virtual host these limits, in place of those it has. As `set`."""
        self.set(Parameter(vhost, VHOST_LIMITS, LIMITS, dict(limits)))

    def limits(self, vhost: str) -> Table:
        """The limits of a virtual host, by name."""
        parameter = self.parameters.get((vhost, VHOST_LIMITS, LIMITS))
        return parameter.value if parameter is not None and isinstance(parameter.value, dict) else {}

    def forget_vhost(self, vhost: str) -> None:
        for key in [key for key in self.parameters if key[0] == vhost]:
            self.clear(*key)

    def restore(self, parameters: Iterable[Parameter], global_parameters: Iterable[GlobalParameter]) -> None:
        """Have these, as they were kept."""
        self.parameters = {(each.vhost, each.component, each.name): each for each in parameters}
        self.global_parameters = {each.name: each for each in global_parameters}
